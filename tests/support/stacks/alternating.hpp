// SPDX-License-Identifier: Apache-2.0
/// @file
/// A Llama whose blocks alternate between two kinds, over Threads.
#pragma once

#include <support/stack_runner.hpp>

namespace fsdp::test {

RunResults run_alternating(const RunOptions& options);

}  // namespace fsdp::test
