// SPDX-License-Identifier: Apache-2.0
#include "calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/trainer/run/rank_memory.hpp>

#include "floors.hpp"

namespace fsdp::bench {
namespace {

using device::Cpu;
using device::MemoryKind;

constexpr std::int64_t matmul_size = 1024;
constexpr int matmuls = 8;
constexpr std::int64_t ring_bytes = std::int64_t{64} << 20;
constexpr std::int64_t copy_bytes = std::int64_t{64} << 20;
constexpr std::int64_t rows = 2048, columns = 2048;  // of elementwise operations
constexpr device::AttentionShape attention_shape = {
    .sequences = 1, .sequence_length = rows, .heads = 8, .kv_heads = 2, .head_dim = 64};

}  // namespace

/// Operations on blocks of memory of their own, and what they count.
class RankWorks::Operations {
 public:
  explicit Operations(int threads)
      : bf16_(square_matmuls(DType::bf16, matmul_size, matmuls), ring_bytes, threads),
        fp32_(square_matmuls(DType::f32, matmul_size, matmuls), ring_bytes, threads),
        copies_(copy_bytes, threads),
        arena_(ledger_, scratch(threads)),
        stream_(arena_, threads),
        heads_(block(3)),
        gradients_(block(3)),
        lse_(ledger_, MemoryKind::scratch, attention_shape.heads * attention_shape.sequence_length * 4) {
    for (std::int64_t part = 0; part < 3; ++part) fill_uniform(matrix(heads_, part), 1.0f);
    fill_gradients();
    attend();
    attention_flops_ = static_cast<double>(stream_.counters.attention_flops);
    operate();
    operation_bytes_ = static_cast<double>(stream_.counters.elementwise_bytes);
  }

  void multiply_bf16() { bf16_.run(); }
  void multiply_fp32() { fp32_.run(); }
  void copy() { copies_.run(); }

  void attend() {
    const auto& shape = attention_shape;
    const auto part = [&](const CpuBlock& of, std::int64_t number, std::int64_t heads) {
      return matrix(of, number).slice_columns(0, heads * shape.head_dim);
    };
    const Tensor<float> lse(reinterpret_cast<float*>(lse_.data()), {shape.heads, shape.sequence_length});
    const Tensor<bf16> q = part(heads_, 0, shape.heads), k = part(heads_, 1, shape.kv_heads),
                       v = part(heads_, 2, shape.kv_heads),
                       out = matrix(out_, 0).slice_columns(0, shape.heads * shape.head_dim);
    device::enqueue(stream_, device::Attention<bf16>{.shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse});
    device::enqueue(stream_, device::AttentionBackward<bf16>{.shape = shape,
                                                             .q = q,
                                                             .k = k,
                                                             .v = v,
                                                             .out = out,
                                                             .lse = lse,
                                                             .dout = out,
                                                             .dq = part(gradients_, 0, shape.heads),
                                                             .dk = part(gradients_, 1, shape.kv_heads),
                                                             .dv = part(gradients_, 2, shape.kv_heads)});
  }
  /// What `operate` overwrites: gradients of gradients would end as denormal numbers, which are slow.
  void fill_gradients() {
    for (std::int64_t part = 0; part < 3; ++part) fill_uniform(matrix(gradients_, part), 1.0f);
  }
  /// The norm and the gate of a block's MLP, forward and backward.
  void operate() {
    const Tensor<bf16> x = matrix(heads_, 0), y = matrix(out_, 0), dy = matrix(gradients_, 0);
    const Tensor<const bf16> weight(reinterpret_cast<const bf16*>(gradients_.data()), {columns});
    const Tensor<float> rstd(reinterpret_cast<float*>(lse_.data()), {rows});
    device::enqueue(stream_, device::RmsNorm<bf16>{.x = x, .weight = weight, .y = y, .rstd = rstd});
    device::enqueue(stream_, device::SwiGlu<bf16>{.gate = x, .up = matrix(heads_, 2), .h = y});
    device::enqueue(stream_,
                    device::SwiGluBackward<bf16>{.gate = matrix(gradients_, 1), .up = matrix(gradients_, 2), .dh = dy});
  }

  double matmul_flops() const { return bf16_.flops(); }
  double attention_flops() const { return attention_flops_; }
  double operation_bytes() const { return operation_bytes_; }
  double copied_bytes() const { return static_cast<double>(copies_.bytes()); }

 private:
  static std::int64_t scratch(int threads) {
    const Cpu::Planner planner(threads);
    return std::max(device::scratch(planner, device::Attention<bf16>{.shape = attention_shape}),
                    device::scratch(planner, device::AttentionBackward<bf16>{.shape = attention_shape}));
  }
  CpuBlock block(std::int64_t parts) {
    return {ledger_, MemoryKind::scratch, parts * rows * columns * std::int64_t{sizeof(bf16)}};
  }
  static Tensor<bf16> matrix(const CpuBlock& of, std::int64_t part) {
    return {reinterpret_cast<bf16*>(of.data()) + part * rows * columns, {rows, columns}};
  }

  MatmulReplay bf16_, fp32_;
  Copies copies_;
  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
  CpuBlock heads_, gradients_, lse_;  // [3, rows, columns] twice
  CpuBlock out_ = block(1);
  double attention_flops_ = 0, operation_bytes_ = 0;
};

RankWorks::RankWorks(int threads) : operations_(std::make_unique<Operations>(threads)) {}
RankWorks::~RankWorks() = default;

void RankWorks::add_to(Rounds& rounds) {
  rounds.add([this] { operations_->multiply_bf16(); });
  rounds.add([this] { operations_->multiply_fp32(); });
  rounds.add([this] { operations_->attend(); });
  rounds.add([this] { operations_->operate(); }, [this] { operations_->fill_gradients(); });
  rounds.add([this] { operations_->copy(); });
}

double RankWorks::matmul_flops() const { return operations_->matmul_flops(); }
double RankWorks::attention_flops() const { return operations_->attention_flops(); }
double RankWorks::operation_bytes() const { return operations_->operation_bytes(); }
double RankWorks::copied_bytes() const { return operations_->copied_bytes(); }

std::int64_t resident_bytes() {
  std::ifstream pages("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  pages >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

std::int64_t memory_of_rank(int ranks) { return train::host_memory_of_rank(ranks); }

}  // namespace fsdp::bench
