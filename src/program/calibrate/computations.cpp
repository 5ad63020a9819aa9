// SPDX-License-Identifier: Apache-2.0
#include "computations.hpp"

#include <span>

#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::calibrate {

using device::MatmulRecord;

template <class T>
static void fill(Tensor<T> values, float scale) {
  std::uint32_t state = 0x9e3779b9u;
  for (T& value : std::span(values.data(), static_cast<std::size_t>(values.numel()))) {
    state = state * 1664525u + 1013904223u;
    value = T(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
}
void fill_uniform(Tensor<float> values, float scale) { fill(values, scale); }
void fill_uniform(Tensor<bf16> values, float scale) { fill(values, scale); }

std::vector<MatmulRecord> square_matmuls(DType dtype, std::int64_t size, int count) {
  return std::vector<MatmulRecord>(static_cast<std::size_t>(count),
                                   {.m = size, .n = size, .k = size, .operands = dtype, .result = dtype});
}

std::vector<MatmulRecord> projection(DType dtype, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  constexpr DType sums = DType::f32;
  return {
      {.m = tokens, .n = out, .k = in, .b_transposed = true, .operands = dtype, .result = dtype},
      {.m = tokens, .n = in, .k = out, .operands = dtype, .result = dtype},
      {.m = out, .n = in, .k = tokens, .a_transposed = true, .operands = dtype, .result = sums, .accumulate = true}};
}

template class MatmulReplay<device::Cpu>;

}  // namespace fsdp::calibrate
