// SPDX-License-Identifier: Apache-2.0
#include <comm/mpi_world.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/mpi_runners.hpp>

namespace fsdp::test {

RunResults run_mpi_fsdp2(const RunOptions& options) {
  return run_on_rank<Llama<Stack<FullyShard<>, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(), options);
}
RunResults run_mpi_fsdp2_no_reshard(const RunOptions& options) {
  return run_on_rank<Llama<Stack<FullyShard<ReshardAfterForward::no>, comm::Mpi<>, Fp32, tiling::RunTime>>>(
      comm::mpi_world(), options);
}
RunResults run_mpi_fsdp2_group(const RunOptions& options) {
  return run_on_rank<Llama<Stack<FullyShard<ReshardAfterForward::to_group>, comm::Mpi<>, Fp32, tiling::RunTime>>>(
      comm::mpi_world(), options);
}

}  // namespace fsdp::test
