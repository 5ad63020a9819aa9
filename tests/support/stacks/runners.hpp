// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks of one strategy each that the tests compile: a file holds those of one kind, which share most of what the
/// compiler reads.
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
/// A strategy of one of the types that have placements of one kind each.
RunResults run_by_placement(const RunOptions& options);
RunResults run_offload(const RunOptions& options);  ///< RunTimeAny, with its optimizer in host memory
RunResults run_watched(const RunOptions& options);

}  // namespace fsdp::test
