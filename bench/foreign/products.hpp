// SPDX-License-Identifier: Apache-2.0
/// @file
/// The three matrix products of a linear layer, on one thread, implemented as `--matmul eigen|openblas|tessera`
/// selects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::bench::foreign {

/// Computes c = a b, where a and b may be transposed. Matrices are contiguous and row-major.
using Product =
    std::function<void(const device::Operand<float>& a, const device::Operand<float>& b, const Tensor<float>& c)>;

/// Returns the product for x [rows, in], w [out, in], y and dy [rows, out]: y = x wT, dx = dy w and dw = dyT x. Throws
/// InputError for an unknown name, and for OpenBLAS if this build does not have it.
Product product_by(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out);

}  // namespace fsdp::bench::foreign
