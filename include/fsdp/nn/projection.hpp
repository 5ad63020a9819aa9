// SPDX-License-Identifier: Apache-2.0
/// @file
/// Linear layers that read the same input, in as few matmuls as the placement of their weights allows.
///
/// Weights are [out, in] and y = x W^T. Gathered weights lie one after the other in their slot. Without padding between
/// them, they form one taller weight and need one matmul. Gradients are laid out the same way.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/nn/module.hpp>

namespace fsdp::nn {

/// Whether the matrices follow each other in memory without a gap.
template <class T, std::size_t N>
bool adjacent(const std::array<Tensor<T>, N>& matrices) {
  for (std::size_t i = 1; i < N; ++i)
    if (matrices[i].data() != matrices[i - 1].data() + matrices[i - 1].numel()) return false;
  return true;
}

/// Returns the matrices as one matrix of all their rows. They must be adjacent; a single matrix may be a slice of
/// columns.
template <class T, std::size_t N>
Tensor<T> stacked(const std::array<Tensor<T>, N>& matrices) {
  if constexpr (N == 1) return matrices[0];
  std::int64_t rows = 0;
  for (const Tensor<T>& matrix : matrices) rows += matrix.rows();
  return Tensor<T>(matrices[0].data(), {rows, matrices[0].columns()});
}

/// y = [x W0^T, x W1^T, ...]: x [T, in], y [T, out0 + out1 + ...].
template <class L, std::size_t N>
void project(Context<L>& context, Tensor<const typename L::Compute> x,
             const std::array<Tensor<const typename L::Compute>, N>& weights, Tensor<typename L::Compute> y) {
  using Compute = typename L::Compute;
  if (adjacent(weights)) {
    device::enqueue(context.stream, device::Matmul<Compute>{.a = x, .b = device::transposed(stacked(weights)), .c = y});
    return;
  }
  std::int64_t column = 0;
  for (const auto& weight : weights) {
    device::enqueue(context.stream,
                    device::Matmul<Compute>{
                        .a = x, .b = device::transposed(weight), .c = y.slice_columns(column, column + weight.rows())});
    column += weight.rows();
  }
}

/// dx (+)= sum of dy_i W_i: dy [T, out0 + out1 + ...], dx [T, in].
template <class L, std::size_t N, class C>
void project_backward_input(Context<L>& context, Tensor<const typename L::Compute> dy,
                            const std::array<Tensor<const typename L::Compute>, N>& weights, Tensor<C> dx,
                            Write write = Write::overwrite) {
  using Compute = typename L::Compute;
  if (adjacent(weights)) {
    device::enqueue(context.stream,
                    device::Matmul<Compute, C>{.a = dy, .b = stacked(weights), .c = dx, .write = write});
    return;
  }
  std::int64_t column = 0;
  for (const auto& weight : weights) {
    device::enqueue(context.stream, device::Matmul<Compute, C>{.a = dy.slice_columns(column, column + weight.rows()),
                                                               .b = weight,
                                                               .c = dx,
                                                               .write = column == 0 ? write : Write::accumulate});
    column += weight.rows();
  }
}

/// dW_i (+)= dy_i^T x, as Accumulate; skips frozen weights.
template <class L, std::size_t N>
void project_backward_weight(Context<L>& context, Tensor<const typename L::Compute> dy,
                             Tensor<const typename L::Compute> x,
                             const std::array<GradientView<typename L::Accumulate>, N>& gradients) {
  using Compute = typename L::Compute;
  using Accumulate = typename L::Accumulate;
  std::array<Tensor<Accumulate>, N> tensors;
  bool alike = true;
  for (std::size_t i = 0; i < N; ++i) {
    tensors[i] = gradients[i].tensor;
    alike = alike && gradients[i].wanted() && *gradients[i].written == *gradients[0].written;
  }
  if (alike && adjacent(tensors)) {
    Write write = Write::overwrite;
    for (const auto& gradient : gradients) write = gradient.next();
    device::enqueue(context.stream, device::Matmul<Compute, Accumulate>{
                                        .a = device::transposed(dy), .b = x, .c = stacked(tensors), .write = write});
    return;
  }
  std::int64_t column = 0;
  for (const auto& gradient : gradients) {
    const std::int64_t rows = gradient.tensor.rows();
    if (gradient.wanted())
      device::enqueue(context.stream, device::Matmul<Compute, Accumulate>{
                                          .a = device::transposed(dy.slice_columns(column, column + rows)),
                                          .b = x,
                                          .c = gradient.tensor,
                                          .write = gradient.next()});
    column += rows;
  }
}

}  // namespace fsdp::nn
