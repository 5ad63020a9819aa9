// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's backward pass between its matmuls (Dao 2023, FlashAttention-2, algorithm 2).
#include "../attention_kernels.hpp"
#include "attention_vector.hpp"

namespace fsdp::device::cpu {
namespace {

template <class T>
void delta(const Rows<const T>& out, const Rows<const T>& dout, float* delta) {
  for (std::int64_t row = 0; row < out.rows; ++row) {
    const T* const left = out.data + row * out.stride;
    const T* const right = dout.data + row * dout.stride;
    Floats sums = {};
    std::int64_t column = 0;
    for (; column + lanes <= out.columns; column += lanes) sums += load(left + column) * load(right + column);
    float sum = total(sums);
    for (; column < out.columns; ++column) sum += float(left[column]) * float(right[column]);
    delta[row] = sum;
  }
}

/// Processes one vector of a row of a GradientTile, of which only the first `seen` lanes are used.
template <class T>
void gradient_lanes(const GradientTile& tile, float* scores, float* gradient, std::int64_t column, Integers seen) {
  const Floats power = power_of_two(load(scores + column) * tile.scale - load(tile.lse + column));
  const Floats product = power * (load(gradient + column) - load(tile.delta + column));
  store_operand(reinterpret_cast<T*>(scores) + column, select(seen, power, Floats{}));
  store_operand(reinterpret_cast<T*>(gradient) + column, select(seen, product, Floats{}));
}

template <class T>
void gradient(const GradientTile& tile) {
  const Integers all = below(lanes);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    float* const scores = tile.scores + row * tile.leading;
    float* const gradients = tile.gradient + row * tile.leading;
    const std::int64_t hidden = tile.hidden + row, left = tile.left + row;
    const std::int64_t seen = left < tile.seen ? left : tile.seen;
    std::int64_t column = 0;
    for (; column < tile.columns && column < hidden; column += lanes)
      gradient_lanes<T>(tile, scores, gradients, column, ~below(hidden - column) & below(seen - column));
    for (; column + lanes <= seen; column += lanes) gradient_lanes<T>(tile, scores, gradients, column, all);
    for (; column < tile.columns; column += lanes)
      gradient_lanes<T>(tile, scores, gradients, column, below(seen - column));
  }
}

template <class T>
void store_sum(const float* from, std::int64_t parts, std::int64_t distance, float scale, const Rows<T>& to) {
  for (std::int64_t row = 0; row < to.rows; ++row) {
    const float* const source = from + row * to.columns;
    T* const target = to.data + row * to.stride;
    std::int64_t column = 0;
    for (; column + lanes <= to.columns; column += lanes) {
      Floats sum = load(source + column);
      for (std::int64_t part = 1; part < parts; ++part) sum += load(source + part * distance + column);
      store(target + column, sum * scale);
    }
    for (; column < to.columns; ++column) {
      float sum = source[column];
      for (std::int64_t part = 1; part < parts; ++part) sum += source[part * distance + column];
      target[column] = T(sum * scale);
    }
  }
}

constexpr AttentionBackwardKernels exported = {
    .f32 = {.delta = delta<float>, .gradient = gradient<float>, .store_sum = store_sum<float>},
    .b16 = {.delta = delta<bf16>, .gradient = gradient<bf16>, .store_sum = store_sum<bf16>},
};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(AttentionBackwardKernels)
