// SPDX-License-Identifier: Apache-2.0
#include <comm/mpi_world.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/mpi_runners.hpp>

namespace fsdp::test {

RunResults run_mpi_hybrid(const RunOptions& options) {
  return run_on_rank<Llama<Stack<HybridShard<FullyShard<>>, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(),
                                                                                                  options);
}
RunResults run_mpi_hybrid_full(const RunOptions& options) {
  return run_on_rank<
      Llama<Stack<HybridShard<FullyShard<>, OptimizerAcross::sharded>, comm::Mpi<>, Fp32, tiling::RunTime>>>(
      comm::mpi_world(), options);
}

}  // namespace fsdp::test
