// SPDX-License-Identifier: Apache-2.0
#include "operands.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdp::calibrate {
namespace {

template <class T>
void fill(Tensor<T> values, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  for (T& value : std::span(values.data(), static_cast<std::size_t>(values.numel()))) {
    state = state * 1664525u + 1013904223u;
    value = T(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
}

}  // namespace

void fill_uniform(Tensor<float> values, float scale) { fill(values, scale); }
void fill_uniform(Tensor<bf16> values, float scale) { fill(values, scale); }

}  // namespace fsdp::calibrate
