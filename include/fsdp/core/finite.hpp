// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds numbers that are infinite or NaN.
#pragma once

#include <cstdint>
#include <span>

namespace fsdp {

/// Returns the index of the first value that is infinite or NaN; -1 if there is none.
std::int64_t first_not_finite(std::span<const float> values);

}  // namespace fsdp
