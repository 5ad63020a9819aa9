// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a calibration measures: matmuls, attention, a block's elementwise operations, copies to and from host memory,
/// and the communicators of the ranks. It accesses a device and a communicator only through these functions.
///
/// To add a device: instantiate `work_on` for it, as on_comm.cpp.in does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/training/launch.hpp>

#include "../cli/commands.hpp"
#include "computations.hpp"
#include "links.hpp"
#include "rounds.hpp"

namespace fsdp::calibrate {

/// One measured computation with its own memory, which its functions share.
struct Work {
  std::function<void()> run;            ///< runs the computation and waits for its end
  std::function<void()> prepare = {};   ///< runs before each `run`, not timed
  std::function<double()> amount = {};  ///< FLOPs or bytes of a run, as plans count them; known after the first run
  std::size_t at = 0;                   ///< number of its case in the rounds that time it

  /// Adds a case that refers to this object.
  void add_to(Rounds& rounds) {
    at = rounds.add([this] { run(); }, prepare ? [this] { prepare(); } : Rounds::Action());
  }
};

/// The measured computations of a device, by size.
struct DeviceWork {
  std::string_view device;
  bool overlaps;  ///< whether collectives overlap with computations
  Work (*matmuls)(std::vector<device::MatmulRecord> list, std::int64_t ring_bytes, int threads) = nullptr;
  Work (*attention)(std::int64_t tokens, int threads) = nullptr;  ///< causal attention in bf16, forward and backward
  Work (*operations)(std::int64_t rows, int threads) = nullptr;
  Work (*copies)(std::int64_t bytes, int threads) = nullptr;
  std::int64_t (*total_bytes)() = nullptr;  ///< bytes of the device's memory; null if it uses host memory
  std::int64_t (*free_bytes)() = nullptr;   ///< the free ones of them
};

/// The measured computations and copies of a rank, each with a size that takes long enough to time.
struct RankWork {
  std::vector<Work> bf16, fp32;  ///< large, medium and small matmuls
  Work attention, operations, copies;

  /// Determines the sizes. Collective.
  RankWork(const comm::Ranks& all, const DeviceWork& on, int threads);
  void add_to(Rounds& rounds);
};

/// The elementwise operations of a block in bf16: its norm and the activation of its MLP, forward and backward.
template <class Device>
class BlockOperations {
 public:
  BlockOperations(std::int64_t rows, int threads) : shape_{rows, 2048}, arena_(ledger_, 0), stream_(arena_, threads) {
    for (const Tensor<bf16>& each : {x_, up_, kept_}) fill_uniform<Device>(stream_, each, 1.0f);
  }

  /// Restores the tensors that `run` overwrites: otherwise repeated runs would reach denormal numbers, which are slow.
  void prepare() {
    for (const Tensor<bf16>& each : {dh_, dgate_, dup_})
      device::enqueue(stream_, device::Copy<bf16>{.x = kept_, .y = each});
    stream_.synchronize();
    stream_.counters = {};
  }
  void run() {
    const Tensor<const bf16> weight(up_.data(), {shape_[1]});
    device::enqueue(stream_, device::RmsNorm<bf16>{.x = x_, .weight = weight, .y = y_, .rstd = rstd_});
    device::enqueue(stream_, device::SwiGlu<bf16>{.gate = x_, .up = up_, .h = y_});
    device::enqueue(stream_, device::SwiGluBackward<bf16>{.gate = dgate_, .up = dup_, .dh = dh_});
    stream_.synchronize();
  }
  /// Returns the bytes of a run, as the operations' costs and plans count them; known after the first run.
  double bytes() const { return static_cast<double>(stream_.counters.elementwise_bytes); }

 private:
  Tensor<bf16> matrix() { return memory_.template make<bf16>(shape_); }

  Shape shape_;
  device::Ledger ledger_;
  typename Device::Arena arena_;
  typename Device::Stream stream_;
  Tensors<Device> memory_ = {};
  Tensor<bf16> x_ = matrix(), up_ = matrix(), y_ = matrix();        // [rows, columns]
  Tensor<bf16> dh_ = matrix(), dgate_ = matrix(), dup_ = matrix();  // [rows, columns]
  Tensor<bf16> kept_ = matrix();                                    // [rows, columns]
  Tensor<float> rstd_ = memory_.template make<float>({shape_[0]});  // [rows]
};

/// Copies from the device's memory to host memory or back.
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

/// Returns the Work of a new object that has run(), flops() or bytes(), and optionally prepare().
template <class Object, class... Arguments>
Work made(Arguments... arguments) {
  const auto own = std::make_shared<Object>(std::move(arguments)...);
  Work work{.run = [own] { own->run(); }};
  if constexpr (requires { own->prepare(); }) work.prepare = [own] { own->prepare(); };
  if constexpr (requires { own->flops(); })
    work.amount = [own] { return own->flops(); };
  else
    work.amount = [own] { return own->bytes(); };
  return work;
}

template <class Device>
DeviceWork work_on() {
  DeviceWork work{.device = Device::name,
                  .overlaps = Device::overlaps,
                  .matmuls = made<MatmulReplay<Device>, std::vector<device::MatmulRecord>, std::int64_t, int>,
                  .operations = made<BlockOperations<Device>, std::int64_t, int>,
                  .copies = made<HostCopies<Device>, std::int64_t, int>};
  work.attention = [](std::int64_t tokens, int threads) {
    constexpr std::int64_t head_dim = Device::host_memory ? 64 : 128;
    const device::AttentionShape shape{
        .sequences = 1, .sequence_length = tokens, .heads = 8, .kv_heads = 2, .head_dim = head_dim};
    return made<AttentionPass<Device, bf16>>(shape, threads);
  };
  if constexpr (requires { Device::total_bytes(); }) {
    work.total_bytes = [] { return Device::total_bytes(); };
    work.free_bytes = [] { return Device::free_bytes(); };
  }
  return work;
}

/// The ranks and the device to be measured.
struct Subject {
  comm::Ranks all;
  bool shares_process = false;  ///< whether the ranks are threads of one process
  DeviceWork device;
  /// Creates the communicators of ranks with equal colors. Collective.
  std::function<Link(FunctionRef<int(int rank)> color_of)> link;
};

/// Measures on all ranks; each figure is that of the slowest rank. Rank 0 writes the file.
void measure(const cli::Calibrate& options, const Subject& subject);

}  // namespace fsdp::calibrate

template <class Comm>
int fsdp::cli::calibrate(const Calibrate& options) {
  using namespace fsdp::calibrate;
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    measure(options,
            {.all = comm::Ranks(communicator),
             .shares_process = train::starts_ranks<Comm>,
             .device = work_on<typename Comm::Device>(),
             .link = [&](FunctionRef<int(int)> color_of) {
               return LinkWork<Comm>::link(std::make_shared<LinkWork<Comm>>(comm::split(communicator, color_of)));
             }});
  });
}
