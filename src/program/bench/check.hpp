// SPDX-License-Identifier: Apache-2.0
/// @file
/// Validation of the options of `tessera bench`.
#pragma once

#include "../cli/bench_options.hpp"

namespace fsdp::bench {

/// Throws InputError, with one sentence about the first invalid value.
void check(const BenchOptions& options, const train::FlagSet& flags);

}  // namespace fsdp::bench
