// SPDX-License-Identifier: Apache-2.0
/// @file
/// Cross entropy and its gradient in place of the logits. One thread block per row reads the row once for the loss, and
/// again, from the cache, for the gradient.
#include <limits>

#include "arithmetic.cuh"
#include "kernel.cuh"

namespace fsdp::device::cuda {
namespace {

/// Columns of a row's state. The row's log sum exp is maximum + log(sum).
enum State : std::int64_t { maximum, sum, target_logit };

/// Folds the states of a block's threads into one state, in a fixed order; returns it in every thread.
__device__ __forceinline__ Softmax block_softmax(Softmax own) {
  __shared__ Softmax states[most_threads / warp];
#pragma unroll
  for (int mask = warp / 2; mask > 0; mask /= 2) {
    Softmax other;
    other.maximum = exchange(own.maximum, mask);
    other.sum = exchange(own.sum, mask);
    own.add(other);
  }
  __syncthreads();  // other threads may still be reading an earlier row's states
  if (threadIdx.x % warp == 0) states[threadIdx.x / warp] = own;
  __syncthreads();
  Softmax all = states[0];
  for (unsigned i = 1; i < blockDim.x / warp; ++i) all.add(states[i]);
  return all;
}

template <int W, class T>
__device__ __forceinline__ Softmax softmax_of_row(const Cut& cut, const T* row) {
  Softmax own;
  for_row<W>(cut, threadIdx.x, blockDim.x, [&]<int V>(std::int64_t column) {
    float a[V];
    load(row + column, a);
#pragma unroll
    for (int i = 0; i < V; ++i) own.add(a[i]);
  });
  return block_softmax(own);
}

/// row = scale * (softmax - one_hot). Thread 0 writes the target's entry separately, after all threads have read it.
template <int W, class T>
__device__ __forceinline__ void replace_row(const Cut& cut, T* row, std::int64_t target, double most, double total,
                                            float scale) {
  const bool holds_target = target >= 0 && target < cut.columns;
  const float at_target = holds_target ? target_gradient(widen(row[target]), most, total, scale) : 0.0f;
  __syncthreads();
  const auto factor = static_cast<float>(static_cast<double>(scale) / total);
  for_row<W>(cut, threadIdx.x, blockDim.x, [&]<int V>(std::int64_t column) {
    float a[V];
    load(row + column, a);
#pragma unroll
    for (int i = 0; i < V; ++i) {
      a[i] = softmax_gradient(a[i], static_cast<float>(most), factor);
      if (column + i == target) a[i] = at_target;
    }
    store(row + column, a);
  });
}

struct Problem {
  std::int64_t rows;
  Cut cut;
  const std::int32_t* targets;
  std::int64_t first;  ///< the vocabulary index of column 0
};

template <class T, int W, bool Replace>
__global__ void whole_rows(Problem p, Rows<T> logits, float scale, double* losses) {
  for_rows_of_block(p.rows, [&](std::int64_t index) {
    T* const row = logits.row(index);
    const Softmax softmax = softmax_of_row<W>(p.cut, row);
    const std::int64_t target = p.targets[index];
    if (threadIdx.x == 0)
      losses[index] = target >= 0 && target < p.cut.columns
                          ? negative_log_likelihood(softmax.maximum, softmax.sum, widen(row[target]))
                          : std::numeric_limits<double>::quiet_NaN();
    if constexpr (Replace)
      replace_row<W>(p.cut, const_cast<std::remove_const_t<T>*>(row), target, softmax.maximum, softmax.sum, scale);
  });
}

template <class T, int W>
__global__ void fold_rows(Problem p, Rows<const T> logits, double* states) {
  for_rows_of_block(p.rows, [&](std::int64_t index) {
    const Softmax block = softmax_of_row<W>(p.cut, logits.row(index));
    if (threadIdx.x != 0) return;
    double* const state = states + 3 * index;
    if (p.first == 0) {
      state[maximum] = -std::numeric_limits<double>::infinity();
      state[sum] = state[target_logit] = 0;
    }
    const double most = fmax(state[maximum], static_cast<double>(block.maximum));
    state[sum] = state[sum] * exp(state[maximum] - most) +
                 static_cast<double>(block.sum) * exp(static_cast<double>(block.maximum) - most);
    state[maximum] = most;
    const std::int64_t target = p.targets[index] - p.first;
    if (target >= 0 && target < p.cut.columns) state[target_logit] = widen(logits.row(index)[target]);
  });
}

template <class T, int W>
__global__ void replace_rows(Problem p, Rows<T> logits, float scale, const double* states) {
  for_rows_of_block(p.rows, [&](std::int64_t index) {
    const double* const state = states + 3 * index;
    replace_row<W>(p.cut, logits.row(index), p.targets[index] - p.first, state[maximum], state[sum], scale);
  });
}

/// In the plain variant, a block is one warp, which processes its row element by element.
template <class T>
Problem problem(Lane lane, const Tensor<T>& logits, Tensor<const std::int32_t> targets, std::int64_t first) {
  constexpr std::int64_t width = 16 / sizeof(T);
  return {.rows = logits.rows(),
          .cut = lane.plain ? cut_singly(logits.columns()) : cut_for_vectors(logits.columns(), width, {access(logits)}),
          .targets = targets.data(),
          .first = first};
}
Grid grid(Lane lane, const Problem& p) { return grid_of_rows(p.rows, lane.plain ? 1 : p.cut.items()); }

template <bool Replace, class Op, class T>
void launch_whole(Lane lane, const Op& op, const Tensor<T>& logits, float scale, Scratch memory) {
  const auto losses = memory.as<double>({logits.rows()});
  if (losses.numel() == 0) return;
  const Problem p = problem(lane, logits, op.targets, 0);
  const auto kernel = p.cut.vectors > 0 ? whole_rows<T, 16 / sizeof(T), Replace> : whole_rows<T, 1, Replace>;
  launch(lane, Op::name.data(), kernel, grid(lane, p), 0, p, Rows<T>(logits), scale, losses.data());
  add_up(lane, losses, op.loss);
}

}  // namespace

template <class T>
void compute(Lane lane, const CrossEntropyLoss<T>& op, Scratch memory) {
  launch_whole<false>(lane, op, op.logits, 0.0f, memory);
}

/// Replaces the logits by their gradient.
template <class T>
void compute(Lane lane, const CrossEntropy<T>& op, Scratch memory) {
  launch_whole<true>(lane, op, op.logits, op.scale, memory);
}

template <class T>
void compute(Lane lane, const CrossEntropyFold<T>& op) {
  if (op.logits.rows() == 0) return;
  const Problem p = problem(lane, op.logits, op.targets, op.first);
  const auto kernel = p.cut.vectors > 0 ? fold_rows<T, 16 / sizeof(T)> : fold_rows<T, 1>;
  launch(lane, "cross_entropy_fold", kernel, grid(lane, p), 0, p, Rows<const T>(op.logits), op.state.data());
}

template <class T>
void compute(Lane lane, const CrossEntropyGradient<T>& op) {
  if (op.logits.rows() == 0) return;
  const Problem p = problem(lane, op.logits, op.targets, op.first);
  const auto kernel = p.cut.vectors > 0 ? replace_rows<T, 16 / sizeof(T)> : replace_rows<T, 1>;
  launch(lane, "cross_entropy_gradient", kernel, grid(lane, p), 0, p, Rows<T>(op.logits), op.scale, op.state.data());
}

FSDP_FOR_TYPES(compute, Lane, CrossEntropy, Scratch)
FSDP_FOR_TYPES(compute, Lane, CrossEntropyLoss, Scratch)
FSDP_FOR_TYPES(compute, Lane, CrossEntropyFold)
FSDP_FOR_TYPES(compute, Lane, CrossEntropyGradient)

}  // namespace fsdp::device::cuda
