// SPDX-License-Identifier: Apache-2.0
/// @file
/// AdamW, SGD, and the squared norm, in double or exact, over ranges of float shards.
#include "../../optimizer_step.hpp"
#include "tables.hpp"
#include "vector.hpp"

namespace fsdp::device::cpu {
namespace {

void adamw(const AdamWFactors& f, float* main, float* first_moment, float* second_moment, const float* gradient,
           bf16* model, std::int64_t count) {
  for_vectors(count, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
    const Floats g = load(gradient + i, part) * f.gradient_scale;
    const Floats m = load(first_moment + i, part) * f.beta1 + g * f.one_minus_beta1;
    const Floats v = load(second_moment + i, part) * f.beta2 + g * g * f.one_minus_beta2;
    const Floats denominator = square_root(v) * f.root_scale + f.eps;
    const Floats w = load(main + i, part) * f.decay - m / denominator * f.step_size;
    store(first_moment + i, m, part);
    store(second_moment + i, v, part);
    store(main + i, w, part);
    if (model != nullptr) store(model + i, w, part);
  });
}

void sgd(const SgdRules& rules, const StepDecision& step, float* main, float* momentum, const float* gradient,
         bf16* model, std::int64_t count) {
  const float scale = step.gradient_scale, lr = static_cast<float>(step.lr), kept = rules.momentum;
  for_vectors(count,
              [=, decay = rules.weight_decay, nesterov = rules.nesterov](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
                const Floats w = load(main + i, part);
                const Floats g = load(gradient + i, part) * scale + w * decay;
                Floats direction = g;
                if (momentum != nullptr) {
                  const Floats m = load(momentum + i, part) * kept + g;
                  store(momentum + i, m, part);
                  direction = nesterov ? g + m * kept : m;
                }
                const Floats stepped = w - direction * lr;
                store(main + i, stepped, part);
                if (model != nullptr) store(model + i, stepped, part);
              });
}

using Doubles [[gnu::vector_size(lanes * 4)]] = double;
using FewFloats [[gnu::vector_size(lanes * 2)]] = float;

constexpr std::int64_t width = lanes / 2;  // of Doubles
constexpr std::int64_t sums = 16;          // number of interleaved sums

FSDP_INLINE Doubles load_doubles(const float* from) {
  FewFloats few;
  __builtin_memcpy(&few, from, sizeof few);
#if defined(__aarch64__)  // as in vector.hpp
  return reinterpret_cast<Doubles>(vcvt_f64_f32(reinterpret_cast<float32x2_t>(few)));
#elif defined(__AVX512F__)  // g++ 12 would convert halves of the vector through the stack
  return reinterpret_cast<Doubles>(_mm512_maskz_cvtps_pd(0xff, reinterpret_cast<__m256>(few)));
#elif defined(__AVX2__)
  return reinterpret_cast<Doubles>(_mm256_cvtps_pd(reinterpret_cast<__m128>(few)));
#else
  return __builtin_convertvector(few, Doubles);
#endif
}

double sum_of_squares(const float* x, std::int64_t count) {
  Doubles partial[sums / width] = {};
  std::int64_t i = 0;
  for (; i + sums <= count; i += sums)
    for (std::int64_t j = 0; j < sums / width; ++j) {
      const Doubles value = load_doubles(x + i + j * width);
      partial[j] += value * value;  // the product of two floats is exact in double, with or without FMA
    }
  double total = 0;
  for (const Doubles& some : partial)
    for (std::int64_t lane = 0; lane < width; ++lane) total += some[lane];
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

std::int64_t largest_magnitude(const float* x, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t bits = __builtin_bit_cast(std::int32_t, x[i]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/// Computes integers in doubles, which represent 53 bits exactly: q = coarse + fine, where coarse is a multiple of
/// 2^10, so that q^2 = coarse^2 + fine (q + coarse). The first is a multiple of 2^20 up to 2^60, the second is below
/// 2^40: sums of 2^13 of either are exact.
SplitSum fixed_point_squares(const float* x, double scale, std::int64_t count) {
  static_assert(sum_chunk / sums <= 1 << 13);
  constexpr double to_whole = 0x1.8p52, to_coarse = 0x1.8p62;  // adding these rounds to multiples of 1 and of 2^10
  Doubles coarse[sums / width] = {}, fine[sums / width] = {};
  const auto add = [&](const float* from) FSDP_INLINE_LAMBDA {
    for (std::int64_t j = 0; j < sums / width; ++j) {
      const Doubles value = load_doubles(from + j * width) * scale;  // exact, with or without FMA
      const Doubles whole = (value + to_whole) - to_whole;
      const Doubles part = (value + to_coarse) - to_coarse;
      coarse[j] += part * part;
      fine[j] += (whole - part) * (whole + part);
    }
  };
  std::int64_t i = 0;
  for (; i + sums <= count; i += sums) add(x + i);
  if (i < count) {
    float rest[sums] = {};
    __builtin_memcpy(rest, x + i, static_cast<std::size_t>(count - i) * sizeof(float));
    add(rest);
  }
  SplitSum total;
  for (std::int64_t j = 0; j < sums / width; ++j)
    for (std::int64_t lane = 0; lane < width; ++lane) {
      total.coarse += static_cast<std::int64_t>(coarse[j][lane] * 0x1p-20);
      total.fine += static_cast<std::int64_t>(fine[j][lane]);
    }
  return total;
}

}  // namespace

FSDP_EXPORT_KERNELS(OptimizerKernels, {.adamw = adamw,
                                       .sgd = sgd,
                                       .sum_of_squares = sum_of_squares,
                                       .largest_magnitude = largest_magnitude,
                                       .fixed_point_squares = fixed_point_squares})

}  // namespace fsdp::device::cpu
