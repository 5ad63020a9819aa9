// SPDX-License-Identifier: Apache-2.0
#include "calibrate.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "attention_pass.hpp"
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
        attention_(attention_shape, threads),
        arena_(ledger_, 0),
        stream_(arena_, threads),
        inputs_(block(2)),
        outputs_(block(1)),
        gradients_(block(3)),
        rstd_(ledger_, MemoryKind::scratch, rows * 4) {
    for (std::int64_t part = 0; part < 2; ++part) fill_uniform(matrix(inputs_, part), 1.0f);
    fill_gradients();
    operate();
    operation_bytes_ = static_cast<double>(stream_.counters.elementwise_bytes);
  }

  void multiply_bf16() { bf16_.run(); }
  void multiply_fp32() { fp32_.run(); }
  void copy() { copies_.run(); }

  void attend() {
    attention_.forward();
    attention_.backward();
  }
  /// What `operate` overwrites: gradients of gradients would end as denormal numbers, which are slow.
  void fill_gradients() {
    for (std::int64_t part = 0; part < 3; ++part) fill_uniform(matrix(gradients_, part), 1.0f);
  }
  /// The norm and the gate of a block's MLP, forward and backward.
  void operate() {
    const Tensor<bf16> x = matrix(inputs_, 0), up = matrix(inputs_, 1), y = matrix(outputs_, 0);
    const Tensor<const bf16> weight(up.data(), {columns});
    const Tensor<float> rstd(reinterpret_cast<float*>(rstd_.data()), {rows});
    device::enqueue(stream_, device::RmsNorm<bf16>{.x = x, .weight = weight, .y = y, .rstd = rstd});
    device::enqueue(stream_, device::SwiGlu<bf16>{.gate = x, .up = up, .h = y});
    device::enqueue(stream_,
                    device::SwiGluBackward<bf16>{
                        .gate = matrix(gradients_, 1), .up = matrix(gradients_, 2), .dh = matrix(gradients_, 0)});
  }

  double matmul_flops() const { return bf16_.flops(); }
  double attention_flops() const { return attention_.counted_flops(); }
  double operation_bytes() const { return operation_bytes_; }
  double copied_bytes() const { return static_cast<double>(copies_.bytes()); }

 private:
  CpuBlock block(std::int64_t parts) {
    return {ledger_, MemoryKind::scratch, parts * rows * columns * std::int64_t{sizeof(bf16)}};
  }
  static Tensor<bf16> matrix(const CpuBlock& of, std::int64_t part) {
    return {reinterpret_cast<bf16*>(of.data()) + part * rows * columns, {rows, columns}};
  }

  MatmulReplay bf16_, fp32_;
  Copies copies_;
  AttentionPass<bf16> attention_;
  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
  CpuBlock inputs_, outputs_, gradients_;  // [2, rows, columns], [1, ...], [3, ...]
  CpuBlock rstd_;                          // [rows]
  double operation_bytes_ = 0;
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

}  // namespace fsdp::bench
