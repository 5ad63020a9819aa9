// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `tessera calibrate` measures of a rank alone, on any device, each in memory of its own.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/offload.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/plan/cluster.hpp>

#include "attention_pass.hpp"
#include "floors.hpp"
#include "matmul_replay.hpp"
#include "rounds.hpp"

namespace fsdp::bench {

/// The elementwise operations of a block in bf16: its norm and the gate of its MLP, forward and backward.
template <class Device>
class BlockOperations {
 public:
  BlockOperations(std::int64_t rows, int threads)
      : rows_(rows),
        arena_(ledger_, 0),
        stream_(arena_, threads),
        inputs_(block(2)),
        outputs_(block(1)),
        gradients_(block(3)),
        kept_(block(1)),
        rstd_(ledger_, device::MemoryKind::scratch, rows * 4) {
    for (std::int64_t part = 0; part < 2; ++part) fill_uniform<Device>(stream_, matrix(inputs_, part), 1.0f);
    fill_uniform<Device>(stream_, matrix(kept_, 0), 1.0f);
  }

  /// Renews what `run` overwrites: gradients of gradients would end as denormal numbers, which are slow.
  void prepare() {
    for (std::int64_t part = 0; part < 3; ++part)
      device::enqueue(stream_, device::Copy<bf16>{.x = matrix(kept_, 0), .y = matrix(gradients_, part)});
    stream_.synchronize();
    stream_.counters = {};
  }
  void run() {
    const Tensor<bf16> x = matrix(inputs_, 0), up = matrix(inputs_, 1), y = matrix(outputs_, 0);
    const Tensor<const bf16> weight(up.data(), {columns});
    const Tensor<float> rstd(reinterpret_cast<float*>(rstd_.data()), {rows_});
    device::enqueue(stream_, device::RmsNorm<bf16>{.x = x, .weight = weight, .y = y, .rstd = rstd});
    device::enqueue(stream_, device::SwiGlu<bf16>{.gate = x, .up = up, .h = y});
    device::enqueue(stream_,
                    device::SwiGluBackward<bf16>{
                        .gate = matrix(gradients_, 1), .up = matrix(gradients_, 2), .dh = matrix(gradients_, 0)});
    stream_.synchronize();
  }
  /// Bytes of a run, as the operations' costs count them, and so do plans. Known after a run.
  double bytes() const { return static_cast<double>(stream_.counters.elementwise_bytes); }

 private:
  using Block = device::Block<Device>;
  static constexpr std::int64_t columns = 2048;

  Block block(std::int64_t parts) {
    return {ledger_, device::MemoryKind::scratch, parts * rows_ * columns * std::int64_t{sizeof(bf16)}};
  }
  Tensor<bf16> matrix(const Block& of, std::int64_t part) const {
    return {reinterpret_cast<bf16*>(of.data()) + part * rows_ * columns, {rows_, columns}};
  }

  std::int64_t rows_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  Block inputs_, outputs_, gradients_, kept_;  // [2, rows, columns], [1, ...], [3, ...], [1, ...]
  Block rstd_;                                 // [rows]
};

/// Copies between the device's memory and its host's, one way.
template <class Device>
class HostCopies {
 public:
  HostCopies(std::int64_t bytes, int threads)
      : arena_(ledger_, 0),
        stream_(arena_, threads),
        queue_("copies"),
        here_(ledger_, device::MemoryKind::scratch, bytes),
        on_host_(ledger_, device::MemoryKind::scratch, bytes) {
    fill_uniform<Device>(stream_, values(here_), 1.0f);
  }

  void run() {
    device::HostOffload<Device>::template transfer<float>(stream_, queue_, values(here_), values(on_host_));
    stream_.synchronize();
    queue_.synchronize();
  }
  double bytes() const { return static_cast<double>(here_.bytes()); }

 private:
  template <class Block>
  static Tensor<float> values(const Block& block) {
    return {reinterpret_cast<float*>(block.data()), {block.bytes() / 4}};
  }

  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  typename Device::Queue queue_;
  device::Block<Device> here_;
  device::Block<device::HostOffload<Device>> on_host_;
};

/// Causal attention in bf16, forward and backward.
template <class Device>
class BothPasses {
 public:
  BothPasses(std::int64_t tokens, int threads)
      : passes_({.sequences = 1,
                 .sequence_length = tokens,
                 .heads = 8,
                 .kv_heads = 2,
                 .head_dim = Device::host_memory ? 64 : 128},
                threads) {}
  void run() {
    passes_.forward();
    passes_.backward();
    passes_.wait();
  }
  /// As plans count them.
  double flops() const { return passes_.counted_flops(); }

 private:
  AttentionPass<Device, bf16> passes_;
};

/// A work as large as a clock needs, and its case in the rounds that time it.
template <class Work>
struct SizedWork {
  std::unique_ptr<Work> work;
  std::size_t at = 0;

  void add_to(Rounds& rounds) {
    at = rounds.add([this] { work->run(); }, [this] { prepare(); });
  }
  void prepare() {
    if constexpr (requires { work->prepare(); }) work->prepare();
  }
  /// FLOPs or bytes of a run. Known after one.
  double amount() const {
    if constexpr (requires { work->flops(); })
      return work->flops();
    else
      return work->bytes();
  }
};

/// Returns `make(step)`, a work, for the first step from 0 on whose run takes 20 ms on the slowest rank, or for `last`;
/// the same step on all ranks. Collective.
template <class Make>
auto sized_work(const comm::Ranks& all, int last, const Make& make) {
  constexpr double enough = 20e-3;
  for (int step = 0;; ++step) {
    SizedWork<typename decltype(make(step))::element_type> sized;
    comm::together(all, "calibrate", [&] { sized.work = make(step); });
    Rounds rounds;
    sized.add_to(rounds);
    rounds.run(1, [&] { all.barrier({"calibrate"}); });
    all.reduce(rounds.samples(), comm::Reduction::max, {"calibrate"});
    if (step == last || rounds.seconds(0, 0) >= enough) return sized;
  }
}

/// Returns matmuls whose smallest size is `smallest`, or a multiple of it where that is large: from step to step twice
/// as many, or twice as large, up to 8 times. Squares, or the projections of a batch of tokens.
std::vector<device::MatmulRecord> matmuls_of_class(DType dtype, std::int64_t smallest, int step);

/// What a rank computes and copies alone: matmuls of all classes, attention, a block's elementwise operations, copies.
template <class Device>
class RankWorks {
 public:
  /// Smallest sizes of the classes' matmuls: large, medium and small.
  static constexpr std::array<std::int64_t, 3> smallest = {plan::Cluster::least_large, 512, 128};

  /// Finds sizes that take long enough. Collective.
  RankWorks(const comm::Ranks& all, int threads) {
    constexpr std::int64_t mebi = std::int64_t{1} << 20;
    for (std::size_t size = 0; size < smallest.size(); ++size)
      for (const DType dtype : {DType::bf16, DType::f32})
        (dtype == DType::bf16 ? bf16_ : fp32_)[size] = sized_work(all, 9, [&](int step) {
          return std::make_unique<MatmulReplay<Device>>(matmuls_of_class(dtype, smallest[size], step),
                                                        (size == 0 ? 64 : 16) * mebi, threads);
        });
    attention = sized_work(
        all, 7, [&](int step) { return std::make_unique<BothPasses<Device>>(std::int64_t{128} << step, threads); });
    operations = sized_work(all, 8, [&](int step) {
      return std::make_unique<BlockOperations<Device>>(std::int64_t{256} << step, threads);
    });
    copies = sized_work(all, 6, [&](int step) {
      return std::make_unique<HostCopies<Device>>(std::int64_t{1} << (20 + step), threads);
    });
  }
  RankWorks(const RankWorks&) = delete;
  RankWorks& operator=(const RankWorks&) = delete;

  /// Adds a case for each work.
  void add_to(Rounds& rounds) {
    for (std::size_t size = 0; size < smallest.size(); ++size) {
      bf16_[size].add_to(rounds);
      fp32_[size].add_to(rounds);
    }
    attention.add_to(rounds);
    operations.add_to(rounds);
    copies.add_to(rounds);
  }
  /// Matmuls by their class.
  const SizedWork<MatmulReplay<Device>>& matmuls(DType dtype, std::size_t size) const {
    return (dtype == DType::bf16 ? bf16_ : fp32_)[size];
  }

  SizedWork<BothPasses<Device>> attention;
  SizedWork<BlockOperations<Device>> operations;
  SizedWork<HostCopies<Device>> copies;

 private:
  std::array<SizedWork<MatmulReplay<Device>>, smallest.size()> bf16_, fp32_;
};

extern template class RankWorks<device::Cpu>;

}  // namespace fsdp::bench
