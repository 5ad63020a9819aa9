// SPDX-License-Identifier: Apache-2.0
/// @file
/// The three products of a linear layer, on one thread, by `--matmul eigen|openblas|tessera`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::bench::foreign {

/// c = a b, or of their transposes. Matrices are contiguous and row-major.
using Product =
    std::function<void(const device::Operand<float>& a, const device::Operand<float>& b, const Tensor<float>& c)>;

/// Returns the product for x [rows, in], w [out, in], y and dy [rows, out]: y = x wT, dx = dy w and dw = dyT x. Throws
/// InputError for an unknown name, and for OpenBLAS if this build has none.
Product product_by(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out);

}  // namespace fsdp::bench::foreign
