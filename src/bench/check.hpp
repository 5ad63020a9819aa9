// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `tessera bench` refuses before it measures anything.
#pragma once

#include "bench/options.hpp"

namespace fsdp::bench {

/// Throws InputError with one sentence about the first value that cannot be measured.
void check(const BenchOptions& options);

}  // namespace fsdp::bench
