// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention between its matmuls (Dao 2023, FlashAttention-2): the online softmax of the forward pass (algorithm 1) and
/// the gradients of the backward pass (algorithm 2).
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

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
  Floats first = broadcast(-__builtin_inff()), second = first;
  std::int64_t column = 0;
  for (; column + 2 * lanes <= visible; column += 2 * lanes) {
    first = larger_of(load(row + column), first);
    second = larger_of(load(row + column + lanes), second);
  }
  for (; column < visible; column += lanes)
    first = larger_of(select(below(visible - column), load(row + column), broadcast(-__builtin_inff())), first);
  return maximum(larger_of(first, second));
}

/// Replaces row by 2^(scale * row - maximum), and by 0 outside [first, visible). Returns its sum before rounding to T.
template <class T>
float exponentiate(float* row, std::int64_t first, std::int64_t visible, std::int64_t columns, float scale,
                   float maximum) {
  T* const probabilities = reinterpret_cast<T*>(row);
  Floats sums = {};
  std::int64_t column = 0;
  const auto exponentiate_lanes = [&](Integers seen) FSDP_INLINE_LAMBDA {
    const Floats power = select(seen, power_of_two(load(row + column) * scale - maximum), Floats{});
    store(probabilities + column, power);
    sums += power;
  };
  for (; column + lanes <= first; column += lanes) store(probabilities + column, Floats{});
  if (column < first) {
    exponentiate_lanes(~below(first - column) & below(visible - column));
    column += lanes;
  }
  for (; column + lanes <= visible; column += lanes) {
    const Floats power = power_of_two(load(row + column) * scale - maximum);
    store(probabilities + column, power);
    sums += power;
  }
  for (; column < columns; column += lanes) exponentiate_lanes(below(visible - column));
  return sum(sums);
}

void multiply(float* row, std::int64_t columns, float factor) {
  for_vectors(columns, [=](std::int64_t i, auto part)
                           FSDP_INLINE_LAMBDA { store(row + i, load(row + i, part) * factor, part); });
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

template <class T>
void delta(const Rows<const T>& out, const Rows<const T>& dout, float* delta) {
  for (std::int64_t row = 0; row < out.rows; ++row) {
    const T* const left = out.data + row * out.stride;
    const T* const right = dout.data + row * dout.stride;
    Floats sums = {};
    std::int64_t column = 0;
    for (; column + lanes <= out.columns; column += lanes) sums += load(left + column) * load(right + column);
    float product = sum(sums);
    for (; column < out.columns; ++column) product += float(left[column]) * float(right[column]);
    delta[row] = product;
  }
}

/// Processes one vector of a row of a GradientTile, of which only the first `seen` lanes are used.
template <class T>
FSDP_INLINE void gradient_lanes(const GradientTile& tile, float* scores, float* gradient, std::int64_t column,
                                Integers seen) {
  const Floats power = power_of_two(load(scores + column) * tile.scale - load(tile.lse + column));
  const Floats product = power * (load(gradient + column) - load(tile.delta + column));
  store(reinterpret_cast<T*>(scores) + column, select(seen, power, Floats{}));
  store(reinterpret_cast<T*>(gradient) + column, select(seen, product, Floats{}));
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

template <class T>
constexpr AttentionFunctions<T> attention_functions = {.pack = pack<T>,
                                                       .softmax = softmax<T>,
                                                       .finish = finish<T>,
                                                       .delta = delta<T>,
                                                       .gradient = gradient<T>,
                                                       .store_sum = store_sum<T>};

}  // namespace

FSDP_EXPORT_KERNELS(AttentionKernels, {{attention_functions<float>, attention_functions<bf16>}})

}  // namespace fsdp::device::cpu
