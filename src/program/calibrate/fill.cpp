// SPDX-License-Identifier: Apache-2.0
#include "fill.hpp"

#include <cstdint>

namespace fsdp::calibrate {
namespace {

template <class T>
void fill(Tensor<T> values, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    state = state * 1664525u + 1013904223u;
    values.data()[i] = T(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
}

}  // namespace

void fill_uniform(Tensor<float> values, float scale) { fill(values, scale); }
void fill_uniform(Tensor<bf16> values, float scale) { fill(values, scale); }

}  // namespace fsdp::calibrate
