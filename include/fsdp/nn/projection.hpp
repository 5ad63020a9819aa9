// SPDX-License-Identifier: Apache-2.0
/// @file
/// Linear layers that read the same input, in as few matmuls as the placement of their weights allows.
///
/// Weights are [out, in] and y = x W^T. Gathered weights are stored one after the other in their slot. Without padding
/// between them, they form one taller weight. If the outputs are adjacent columns of one matrix as well, one matmul
/// computes all layers. Gradients are laid out the same way.
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

/// Returns the matrices as one wider matrix if they are adjacent columns of it, else an empty tensor.
template <class T, std::size_t N>
Tensor<T> side_by_side(const std::array<Tensor<T>, N>& matrices) {
  const Tensor<T>& first = matrices[0];
  std::int64_t columns = 0;
  for (const Tensor<T>& matrix : matrices) {
    if (matrix.data() != first.data() + columns) return {};
    if (first.rows() > 1 && matrix.row_stride() != first.row_stride()) return {};
    columns += matrix.columns();
  }
  return first.rows() > 1 ? Tensor<T>::strided(first.data(), first.rows(), columns, first.row_stride())
                          : Tensor<T>(first.data(), {first.rows(), columns});
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

/// c (+)= a b.
template <class L, class C>
void multiply(Context<L>& context, const device::Operand<typename L::Compute>& a,
              const device::Operand<typename L::Compute>& b, Tensor<C> c, Write write = Write::overwrite) {
  context.enqueue(device::Matmul<typename L::Compute, C>{.a = a, .b = b, .c = c, .write = write});
}

/// y_i (+)= x W_i^T: x [T, in], y_i [T, out_i]. Skips absent weights.
template <class L, std::size_t N, class C = typename L::Compute>
void project(Context<L>& context, Tensor<const typename L::Compute> x,
             const std::array<Tensor<const typename L::Compute>, N>& weights, const std::array<Tensor<C>, N>& y,
             Write write = Write::overwrite) {
  const Tensor<C> all = adjacent(weights) ? side_by_side(y) : Tensor<C>();
  if (all.data() != nullptr) return multiply(context, x, device::transposed(stacked(weights)), all, write);
  for (std::size_t i = 0; i < N; ++i)
    if (weights[i].data() != nullptr) multiply(context, x, device::transposed(weights[i]), y[i], write);
}

/// dx (+)= sum of dy_i W_i: dy_i [T, out_i], dx [T, in]. Skips absent weights.
template <class L, std::size_t N, class C, class D = Tensor<const typename L::Compute>>
void project_backward_input(Context<L>& context, const std::array<D, N>& dy,
                            const std::array<Tensor<const typename L::Compute>, N>& weights, Tensor<C> dx,
                            Write write = Write::overwrite) {
  const D all = adjacent(weights) ? side_by_side(dy) : D();
  if (all.data() != nullptr) return multiply(context, all, stacked(weights), dx, write);
  for (std::size_t i = 0; i < N; ++i) {
    if (weights[i].data() == nullptr) continue;
    multiply(context, dy[i], weights[i], dx, write);
    write = Write::accumulate;
  }
}

/// y = x W, where W is a slice of columns of a wider weight. The product is computed in a float buffer and then
/// rounded: if oneDNN rounds a product with a strided operand itself, its scratch is larger than this buffer.
template <class L, class C>
void multiply_by_slice(Context<L>& context, Tensor<const typename L::Compute> x,
                       Tensor<const typename L::Compute> weight, Tensor<C> y) {
  typename L::Frame frame(context.arena);
  const auto wide = frame.template allocate<float>(y.shape());  // [t, c]
  multiply(context, x, weight, wide);
  context.progress();
  context.enqueue(device::Copy<float, C>{.x = wide, .y = y});
}

/// dW_i (+)= dy_i^T x, stored as type Accumulate; skips frozen weights.
template <class L, std::size_t N>
void project_backward_weight(Context<L>& context, const std::array<Tensor<const typename L::Compute>, N>& dy,
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
  const Tensor<const Compute> all = alike && adjacent(tensors) ? side_by_side(dy) : Tensor<const Compute>();
  if (all.data() != nullptr) {
    Write write = Write::overwrite;
    for (const auto& gradient : gradients) write = gradient.next();
    return multiply(context, device::transposed(all), x, stacked(tensors), write);
  }
  for (std::size_t i = 0; i < N; ++i)
    if (gradients[i].wanted())
      multiply(context, device::transposed(dy[i]), x, gradients[i].tensor, gradients[i].next());
}

/// Call it before a gradient is written in parts, some of which may be written twice. Zeroes the gradient if the next
/// write is its first, so that every part accumulates.
template <class L>
void write_in_parts(Context<L>& context, const GradientView<typename L::Accumulate>& gradient) {
  if (gradient.wanted() && gradient.next() == Write::overwrite)
    context.enqueue(device::Fill<typename L::Accumulate>{.y = gradient.tensor});
}

}  // namespace fsdp::nn
