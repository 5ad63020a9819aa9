// SPDX-License-Identifier: Apache-2.0
#include <comm/mpi_world.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>

#include <support/stack_run.hpp>
#include <support/stacks/mpi_runners.hpp>

namespace fsdp::test {

namespace {

template <class Sharding>
RunResults run_on_mpi(const RunOptions& options) {
  RankResults own(1);
  run_on_rank<Llama<Stack<Sharding, comm::Mpi<>, Fp32, tiling::RunTimeTiling>>>(comm::mpi_world(), options, own.of(0));
  return own.merged();
}

}  // namespace

const RunTimeStacks mpi_stacks = {
    .any = run_on_mpi<RunTimeAny>,
    .full = run_on_mpi<RunTimeHybridFull>,
};

}  // namespace fsdp::test
