// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stacks that the tests compile: a file holds those of one kind, which share most of what the compiler reads.
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
RunResults run_run_time_sharded(const RunOptions& options);
RunResults run_run_time_grouped(const RunOptions& options);
RunResults run_run_time_full(const RunOptions& options);
RunResults run_run_time_sharded_queued(const RunOptions& options);
RunResults run_run_time_sharded_nccl(const RunOptions& options);
RunResults run_fsdp2_offload(const RunOptions& options);
RunResults run_hybrid_offload_bf16(const RunOptions& options);
RunResults run_fsdp2_bf16_wire(const RunOptions& options);
RunResults run_fsdp2_bf16(const RunOptions& options);
RunResults run_fsdp2_queued(const RunOptions& options);
RunResults run_fsdp2_no_reshard_queued(const RunOptions& options);
RunResults run_fsdp2_group_queued(const RunOptions& options);
RunResults run_zero1_queued(const RunOptions& options);
RunResults run_zero2_queued(const RunOptions& options);
RunResults run_zero3_queued(const RunOptions& options);
RunResults run_hybrid_queued(const RunOptions& options);
RunResults run_hybrid_full_queued(const RunOptions& options);
RunResults run_replicated_queued(const RunOptions& options);
RunResults run_fsdp2_nccl(const RunOptions& options);
RunResults run_fsdp2_no_reshard_nccl(const RunOptions& options);
RunResults run_fsdp2_group_nccl(const RunOptions& options);
RunResults run_zero1_nccl(const RunOptions& options);
RunResults run_zero2_nccl(const RunOptions& options);
RunResults run_zero3_nccl(const RunOptions& options);
RunResults run_hybrid_nccl(const RunOptions& options);
RunResults run_hybrid_full_nccl(const RunOptions& options);
RunResults run_replicated_nccl(const RunOptions& options);
RunResults run_watched(const RunOptions& options);

}  // namespace fsdp::test
