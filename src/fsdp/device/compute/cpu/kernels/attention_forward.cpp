// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's forward pass between its matmuls: the online softmax (Dao 2023, FlashAttention-2, algorithm 1).
#include "../attention_kernels.hpp"
#include "attention_vector.hpp"

namespace fsdp::device::cpu {
namespace {

template <class T>
void pack(const Rows<const T>& from, T* to) {
  for (std::int64_t row = 0; row < from.rows; ++row) {
    const T* const source = from.data + row * from.stride;
    T* const target = to + row * from.columns;
    std::int64_t column = 0;
    constexpr std::int64_t step = 4 * lanes / static_cast<std::int64_t>(sizeof(T));
    for (; column + step <= from.columns; column += step) __builtin_memcpy(target + column, source + column, 4 * lanes);
    for (; column < from.columns; ++column) target[column] = source[column];
  }
}

/// Returns the maximum of row[0, visible), ignoring NaN, which the exponentials propagate.
float row_maximum(const float* row, std::int64_t visible) {
  Floats first = broadcast(-infinity), second = first;
  std::int64_t column = 0;
  for (; column + 2 * lanes <= visible; column += 2 * lanes) {
    first = larger(load(row + column), first);
    second = larger(load(row + column + lanes), second);
  }
  for (; column < visible; column += lanes)
    first = larger(select(below(visible - column), load(row + column), broadcast(-infinity)), first);
  return largest(larger(first, second));
}

/// Replaces row by 2^(scale * row - maximum), and by 0 outside [first, visible). Returns its sum before rounding to T.
template <class T>
float exponentiate(float* row, std::int64_t first, std::int64_t visible, std::int64_t columns, float scale,
                   float maximum) {
  T* const probabilities = reinterpret_cast<T*>(row);
  Floats sums = {};
  std::int64_t column = 0;
  for (; column + lanes <= first; column += lanes) store_operand(probabilities + column, Floats{});
  if (column < first) {
    const Integers seen = ~below(first - column) & below(visible - column);
    const Floats power = select(seen, power_of_two(load(row + column) * scale - maximum), Floats{});
    store_operand(probabilities + column, power);
    sums += power;
    column += lanes;
  }
  for (; column + lanes <= visible; column += lanes) {
    const Floats power = power_of_two(load(row + column) * scale - maximum);
    store_operand(probabilities + column, power);
    sums += power;
  }
  for (; column < columns; column += lanes) {
    const Integers seen = below(visible - column);
    const Floats power = select(seen, power_of_two(load(row + column) * scale - maximum), Floats{});
    store_operand(probabilities + column, power);
    sums += power;
  }
  return total(sums);
}

void multiply(float* row, std::int64_t columns, float factor) {
  std::int64_t column = 0;
  for (; column + lanes <= columns; column += lanes) store(row + column, load(row + column) * factor);
  for (; column < columns; ++column) row[column] *= factor;
}

template <class T>
void softmax(const SoftmaxTile& tile) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    float* const scores = tile.scores + row * tile.leading;
    const std::int64_t seen = tile.visible + row, behind = tile.behind + row;
    const std::int64_t border = behind > tile.first ? behind : tile.first;
    const std::int64_t first = border < tile.columns ? border : tile.columns;
    const std::int64_t visible = seen < first ? first : seen < tile.columns ? seen : tile.columns;
    const float before = tile.maximum[row];
    float maximum = row_maximum(scores + first, visible - first) * tile.scale;
    maximum = maximum > before ? maximum : before;
    const float sum = exponentiate<T>(scores, first, visible, tile.columns, tile.scale, maximum);
    if (maximum != before) {
      const float shrink = power_of_two(broadcast(before - maximum))[0];
      multiply(tile.out + row * tile.head_dim, tile.head_dim, shrink);
      tile.sum[row] *= shrink;
      tile.maximum[row] = maximum;
    }
    tile.sum[row] += sum;
  }
}

template <class T>
void finish(const SoftmaxTile& tile, const Rows<T>& out, float* lse) {
  constexpr float natural_log_of_2 = 0.693147181f;
  for (std::int64_t row = 0; row < out.rows; ++row) {
    const float* const gathered = tile.out + row * tile.head_dim;
    T* const target = out.data + row * out.stride;
    const float share = 1.0f / tile.sum[row];
    std::int64_t column = 0;
    for (; column + lanes <= out.columns; column += lanes) store(target + column, load(gathered + column) * share);
    for (; column < out.columns; ++column) target[column] = T(gathered[column] * share);
    lse[row] = natural_log_of_2 * (tile.maximum[row] + __builtin_log2f(tile.sum[row]));
  }
}

constexpr AttentionForwardKernels exported = {
    .f32 = {.pack = pack<float>, .softmax = softmax<float>, .finish = finish<float>},
    .b16 = {.pack = pack<bf16>, .softmax = softmax<bf16>, .finish = finish<bf16>},
};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(AttentionForwardKernels)
