// SPDX-License-Identifier: Apache-2.0
/// @file
/// Rotary positions for the heads of one token, in the layout of two halves.
#include "../../../cpu/kernels/vector.hpp"
#include "tables.hpp"

namespace fsdp::device::cpu {
namespace {

template <class T>
void rotate(T* x, const float* table_row, float sign, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t head = 0; head < heads; ++head, x += head_dim) {
    for_vectors(half, [=](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      const Floats cosine = load(table_row + i, part);
      const Floats sine = load(table_row + half + i, part) * sign;
      const Floats low = load(x + i, part);
      const Floats high = load(x + half + i, part);
      store(x + i, low * cosine - high * sine, part);
      store(x + half + i, high * cosine + low * sine, part);
    });
  }
}

constexpr RopeKernels exported = {{{.rotate = rotate<float>}, {.rotate = rotate<bf16>}}};

}  // namespace
}  // namespace fsdp::device::cpu

FSDP_EXPORT_KERNELS(RopeKernels)
