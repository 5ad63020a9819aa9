// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks that the tests compile, each with one strategy. Stacks of one kind are in one file, because they share
/// most of the headers and templates.
#pragma once

#include <support/stack_runner.hpp>

namespace fsdp::test {

RunResults run_fsdp2(const RunOptions& options);
RunResults run_fsdp2_no_reshard(const RunOptions& options);
RunResults run_zero1(const RunOptions& options);
RunResults run_zero2(const RunOptions& options);
RunResults run_zero3(const RunOptions& options);
RunResults run_replicated(const RunOptions& options);
RunResults run_fsdp2_group(const RunOptions& options);
RunResults run_hybrid(const RunOptions& options);
RunResults run_hybrid_full(const RunOptions& options);
RunResults run_hybrid_full_bf16(const RunOptions& options);
RunResults run_fsdp2_owned(const RunOptions& options);
RunResults run_fsdp2_offload(const RunOptions& options);
RunResults run_hybrid_offload_bf16(const RunOptions& options);
RunResults run_fsdp2_bf16_wire(const RunOptions& options);
RunResults run_fsdp2_bf16(const RunOptions& options);
/// Runs a strategy of a type that is defined by its placements.
RunResults run_by_placement(const RunOptions& options);
RunResults run_offload(const RunOptions& options);  ///< RunTimeAny with the optimizer in host memory
RunResults run_watched(const RunOptions& options);

}  // namespace fsdp::test
