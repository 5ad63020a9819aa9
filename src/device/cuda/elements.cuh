// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernel that runs an operation on every element of a matrix, 16 bytes at a time where the operands allow it.
#pragma once

#include <algorithm>
#include <span>

#include "kernel.cuh"

namespace fsdp::device::cuda {

/// Elements of the narrowest operand that fill 16 bytes.
template <class... T>
constexpr int widest = 16 / std::min({sizeof(T)...});

/// operation.operator()<W>(row, column) for every vector and every single element.
template <int W, class Operation>
__global__ void for_elements(std::int64_t rows, Cut cut, Operation operation) {
  for (std::int64_t row = blockIdx.y; row < rows; row += gridDim.y)
    for_row<W>(cut, thread_of_grid(), threads_of_grid(),
               [&]<int V>(std::int64_t column) { operation.template operator()<V>(row, column); });
}

/// The plain variant takes every element alone.
template <int W, class Operation>
void run(Lane lane, const char* name, const Operation& operation, std::int64_t rows, std::int64_t columns,
         std::span<const Access> accesses) {
  if (rows == 0 || columns == 0) return;
  const Cut cut = lane.plain ? cut_singly(columns) : cut_for_vectors(rows, columns, W, accesses);
  const Grid grid = grid_of_elements(rows, cut.items());
  if (cut.vectors > 0)
    launch(lane, name, for_elements<W, Operation>, grid, 0, rows, cut, operation);
  else
    launch(lane, name, for_elements<1, Operation>, grid, 0, rows, cut, operation);
}

/// On operands of one shape; those that all lie without gaps are one long row.
template <class Operation, class First, class... T>
void run_on(Lane lane, const char* name, const Operation& operation, const Tensor<First>& first,
            const Tensor<T>&... operands) {
  const bool flat = first.rank() != 2 || (first.contiguous() && ... && operands.contiguous());
  const Access accesses[] = {access(first), access(operands)...};
  run<widest<First, T...>>(lane, name, operation, flat ? 1 : first.rows(), flat ? first.numel() : first.columns(),
                           accesses);
}

}  // namespace fsdp::device::cuda
