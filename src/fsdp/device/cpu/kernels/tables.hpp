// SPDX-License-Identifier: Apache-2.0
/// @file
/// The kernel tables of one instruction set: plain functions over rows or ranges of elements.
///
/// A kernel runs on the caller's thread. Strides are the numbers of elements from one row to the next.
#pragma once

#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/dtype.hpp>

#include "../isa.hpp"

namespace fsdp::device {
struct AdamWFactors;  // in src/fsdp/device/optimizer_step.hpp
struct BlockCode;
struct Draw;
struct SgdRules;
struct StepDecision;
}  // namespace fsdp::device

namespace fsdp::device::cpu {

/// One set of functions for each element type.
template <template <class> class Functions>
struct ByType : Functions<float>, Functions<bf16> {
  template <class T>
  const Functions<T>& of() const {
    return *this;
  }
};

/// The scaling factor of a row, or of a part of a row that begins at `column`, with its dropout.
struct Scaling {
  float factor = 1;
  bool accumulate = false;
  std::uint32_t dropped_below = 0, row = 0, column = 0;  ///< dropout's threshold and position
};

/// Sums of the bits of elements, modulo 2^64: unweighted, and weighted by the index in the range, from 0.
struct DigestSums {
  std::uint64_t bits = 0, by_index = 0;
};

template <class T>
struct ElementwiseFunctions {
  void (*add)(const T* x, T* y, std::int64_t count);
  void (*fill)(T* y, float value, std::int64_t count);
  void (*from_float)(const float* x, T* y, std::int64_t count);
  void (*to_float)(const T* x, float* y, std::int64_t count);
  void (*add_to_float)(const T* x, float* y, std::int64_t count);
  void (*scale)(const T* x, T* y, const Scaling& scaling, std::int64_t count);
  void (*scale_to_float)(const T* x, float* y, const Scaling& scaling, std::int64_t count);
  DigestSums (*digest)(const T* x, std::int64_t count);
};
struct ElementwiseKernels : ByType<ElementwiseFunctions> {};

/// The integer coarse * 2^20 + fine.
struct SplitSum {
  std::int64_t coarse = 0, fine = 0;
};

struct OptimizerKernels {
  /// `model` may be null.
  void (*adamw)(const AdamWFactors& factors, float* main, float* first_moment, float* second_moment,
                const float* gradient, bf16* model, std::int64_t count);
  /// `momentum` and `model` may be null.
  void (*sgd)(const SgdRules& rules, const StepDecision& step, float* main, float* momentum, const float* gradient,
              bf16* model, std::int64_t count);
  /// Sums in double, in sixteen interleaved sums, so that results are bit-identical with every instruction set.
  double (*sum_of_squares)(const float* x, std::int64_t count);
  /// Returns the bits of the largest magnitude.
  std::int64_t (*largest_magnitude)(const float* x, std::int64_t count);
  /// Sums the squares of rint(x * scale), ties to even, over at most sum_chunk elements. Each |rint(x * scale)| is
  /// below 2^30.
  SplitSum (*fixed_point_squares)(const float* x, double scale, std::int64_t count);
};

template <class T>
struct CodecFunctions {
  /// `draw.first` is at the beginning of a block.
  void (*encode)(const BlockCode& code, const T* x, std::byte* y, std::int64_t count, Draw draw);
  void (*decode)(const BlockCode& code, const std::byte* x, T* y, std::int64_t count, bool accumulate);
};
/// The tensors of CodedAdamWStep from an element, which is the first of a block. `model` may be null.
struct CodedRange {
  float* main;
  std::byte *first_moment, *second_moment;
  const float* gradient;
  bf16* model;
  std::int64_t count;
};
struct CodecKernels : ByType<CodecFunctions> {
  void (*dynamic8_adamw)(const AdamWFactors& factors, const CodedRange& range);
  void (*bf16_adamw)(const AdamWFactors& factors, const CodedRange& range, Draw draw);
};

}  // namespace fsdp::device::cpu
