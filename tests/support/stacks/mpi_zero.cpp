// SPDX-License-Identifier: Apache-2.0
#include <comm/mpi_world.hpp>

#include <fsdp/sharding/run_time.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/mpi_runners.hpp>

namespace fsdp::test {

RunResults run_mpi_zero1(const RunOptions& options) {
  return run_on_rank<Llama<Stack<Zero1, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(), options);
}
RunResults run_mpi_zero2(const RunOptions& options) {
  return run_on_rank<Llama<Stack<Zero2, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(), options);
}
RunResults run_mpi_zero3(const RunOptions& options) {
  return run_on_rank<Llama<Stack<Zero3, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(), options);
}
RunResults run_mpi_replicated(const RunOptions& options) {
  return run_on_rank<Llama<Stack<Replicated, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(), options);
}

RunResults run_mpi_run_time_sharded(const RunOptions& options) {
  return run_on_rank<Llama<Stack<RunTimeSharded, comm::Mpi<>, Fp32, tiling::RunTime>>>(comm::mpi_world(), options);
}

}  // namespace fsdp::test
