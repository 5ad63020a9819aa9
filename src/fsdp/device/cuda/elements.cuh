// SPDX-License-Identifier: Apache-2.0
/// @file
/// A kernel that runs an operation on every element of a matrix, 16 bytes at a time if the operands' alignment allows.
#pragma once

#include <algorithm>
#include <span>

#include "kernel.cuh"

namespace fsdp::device::cuda {

/// Number of elements of the narrowest operand in 16 bytes.
template <class... T>
constexpr int widest = 16 / std::min({sizeof(T)...});

/// Calls operation.operator()<W>(row, column) for every vector and every single element.
template <int W, class Operation>
__global__ void for_elements(std::int64_t rows, Cut cut, Operation operation) {
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for_row<W>(cut, thread_of_grid(), threads_of_grid(),
               [&]<int V>(std::int64_t column) { operation.template operator()<V>(row, column); });
}

/// The plain variant processes one element at a time.
template <int W, class Operation>
void run(Lane lane, const char* name, const Operation& operation, std::int64_t rows, std::int64_t columns,
         std::span<const Access> accesses) {
  if (rows == 0 || columns == 0) return;
  const Cut cut = lane.plain ? cut_singly(columns) : cut_for_vectors(columns, W, accesses);
  const Grid grid = grid_of_elements(rows, cut.items());
  if (cut.vectors > 0)
    launch(lane, name, for_elements<W, Operation>, grid, 0, rows, cut, operation);
  else
    launch(lane, name, for_elements<1, Operation>, grid, 0, rows, cut, operation);
}

/// Launches an operation on operands of the same shape. If all operands are contiguous, they are treated as one long
/// row.
template <class Operation, class First, class... T>
void run_on(Lane lane, const char* name, const Operation& operation, const Tensor<First>& first,
            const Tensor<T>&... operands) {
  const bool flat = first.rank() != 2 || (first.contiguous() && ... && operands.contiguous());
  Access accesses[] = {access(first), access(operands)...};
  if (flat)
    for (Access& each : accesses) each.row_stride = 0;
  run<widest<First, T...>>(lane, name, operation, flat ? 1 : first.rows(), flat ? first.numel() : first.columns(),
                           accesses);
}

}  // namespace fsdp::device::cuda
