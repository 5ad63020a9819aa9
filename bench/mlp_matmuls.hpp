// SPDX-License-Identifier: Apache-2.0
/// @file
/// The matmuls of the SwiGLU MLP alone, with which `tessera_bench mlp` compares the module.
#pragma once

#include <cstdint>

#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations.hpp>

#include "mlp_layer.hpp"

namespace fsdp::bench {

/// The matmuls of the module with nothing between them, in memory of the same sizes.
template <class Device, class Compute>
class MlpMatmuls {
 public:
  using Arena = typename Device::Arena;
  using Operands = MlpOperands<Device, Compute>;

  /// On Meta `scratch_bytes` is ignored.
  MlpMatmuls(const MlpSizes& sizes, std::int64_t scratch_bytes)
      : arena_(Arena::planned(ledger_, scratch_bytes)),
        stream_(arena_, sizes.threads),
        operands_(ledger_, sizes),
        gate_up_(ledger_, device::MemoryKind::activations, 2 * sizes.tokens * sizes.intermediate * Operands::element),
        h_(ledger_, device::MemoryKind::activations, sizes.tokens * sizes.intermediate * Operands::element) {}

  /// Runs the nine matmuls of the formula: gate, up and down separately, with contiguous operands.
  void nine() {
    const std::int64_t width = operands_.sizes.intermediate;
    const auto gate = matrix(gate_up_, 0, width);                             // [S, I]
    const auto up = matrix(gate_up_, operands_.sizes.tokens * width, width);  // [S, I]
    const auto h = matrix(h_, 0, width);                                      // [S, I]
    product<Compute>(operands_.x(), device::transposed(operands_.weight(0)), gate);
    product<Compute>(operands_.x(), device::transposed(operands_.weight(1)), up);
    product<Compute>(h, device::transposed(operands_.weight(2)), operands_.y());
    product<Compute>(operands_.dy(), operands_.weight(2), h);
    product<float>(device::transposed(operands_.dy()), h, operands_.gradient(2));
    product<float>(device::transposed(gate), operands_.x(), operands_.gradient(0));
    product<float>(device::transposed(up), operands_.x(), operands_.gradient(1));
    product<Compute>(gate, operands_.weight(0), operands_.y());
    product<Compute>(up, operands_.weight(1), operands_.y(), Write::accumulate);
  }

  /// Runs the six matmuls of the untiled module, which merges gate and up into one.
  void six() {
    const auto gate_up = matrix(gate_up_, 0, 2 * operands_.sizes.intermediate);  // [S, 2 I]
    const auto h = matrix(h_, 0, operands_.sizes.intermediate);                  // [S, I]
    product<Compute>(operands_.x(), device::transposed(operands_.weight(0, 2)), gate_up);
    product<Compute>(h, device::transposed(operands_.weight(2)), operands_.y());
    product<Compute>(operands_.dy(), operands_.weight(2), h);
    product<float>(device::transposed(operands_.dy()), h, operands_.gradient(2));
    product<float>(device::transposed(gate_up), operands_.x(), operands_.gradient(0, 2));
    product<Compute>(gate_up, operands_.weight(0, 2), operands_.y());
  }

  const Operands& operands() const { return operands_; }
  typename Device::Stream& stream() { return stream_; }
  std::int64_t scratch_bytes() const { return arena_.peak(); }

 private:
  using Block = device::Block<Device>;
  Tensor<Compute> matrix(const Block& block, std::int64_t offset, std::int64_t columns) const {
    return {reinterpret_cast<Compute*>(block.data()) + offset, {operands_.sizes.tokens, columns}};
  }
  template <class C>
  void product(device::Operand<Compute> a, device::Operand<Compute> b, Tensor<C> c, Write write = Write::overwrite) {
    device::enqueue(stream_, device::Matmul<Compute, C>{.a = a, .b = b, .c = c, .write = write});
  }

  device::Ledger ledger_;
  Arena arena_;
  typename Device::Stream stream_;
  Operands operands_;
  Block gate_up_, h_;
};

}  // namespace fsdp::bench
