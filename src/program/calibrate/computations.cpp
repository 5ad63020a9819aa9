// SPDX-License-Identifier: Apache-2.0
#include "computations.hpp"

#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::calibrate {

using device::MatmulRecord;

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
