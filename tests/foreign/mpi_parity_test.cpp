// SPDX-License-Identifier: Apache-2.0
// User-defined networks train over MPI processes bit-identically to a plain loop without the library, and in bf16 to
// threads. Every process trains and compares.
#include <mpi.h>

#include <type_traits>
#include <variant>

#include <gtest/gtest.h>

#include <comm/mpi_world.hpp>
#include <tessera/comm/mpi.hpp>

#include "runs.hpp"

namespace fsdp::foreign {
namespace {

using Mpi = comm::Mpi<>;

/// Numbers of micro-batches, by step.
std::vector<std::vector<int>> micro_batches() {
  if (!sweeps_whole()) return {{3, 1, 2, 3}};
  return {{1, 1, 1, 1}, {2, 2, 2, 2}, {3, 3, 3, 3}, {3, 1, 2, 3}};
}

Outcome train_over(Mpi& communicator, const Network& network, const Request& request) {
  return std::visit(
      [&]<class Strategy>(const Strategy& strategy) -> Outcome {
        if constexpr (std::is_same_v<Strategy, RunTimeHybridFull>) {
          throw LogicError("no test needs hybrid:full over MPI");
        } else {
          if (request.precision == In::bf16) return train_on<Bf16Mixed>(communicator, network, request, strategy);
          return train_on<Fp32>(communicator, network, request, strategy);
        }
      },
      request.strategy);
}

void expect_parity(Mpi& communicator, const Network& network, const std::vector<Case>& cases,
                   const std::vector<int>& counts) {
  const Request base{.ranks = communicator.size(), .micro_batches = counts};
  with_expected(network, base, cases, [&](const Request& request, const Outcome& expected) {
    SCOPED_TRACE(message(network.name, ", ", text_of(request.strategy), ", ", request.ranks, " processes, ",
                         counts.front(), " micro-batches"));
    const Outcome found = train_over(communicator, network, request);
    expect_same(found, expected);
    expect_clipping(found, request.clip);
  });
}

TEST(MpiForeignLoop, IsBitIdenticalToThePlainLoop) {
  for (const Network& network : networks())
    for (const std::vector<int>& counts : micro_batches())
      expect_parity(comm::mpi_world(), network, cases_of_one_axis(), counts);
}

TEST(MpiForeignLoop, IsBitIdenticalToThePlainLoopOnTwoAxes) {
  if (comm::mpi_world().size() != 4) return;  // groups have 2 ranks
  std::vector<Case> cases = cases_of_two_axes();
  std::erase_if(cases, [](const Case& how) { return !std::holds_alternative<RunTimeAny>(how.strategy); });
  for (const Network& network : networks())
    for (const std::vector<int>& counts : micro_batches()) expect_parity(comm::mpi_world(), network, cases, counts);
}

TEST(MpiForeignLoop, IsBitIdenticalToThreadsInBf16) {
  Mpi& world = comm::mpi_world();
  const std::vector<Case> cases = cases_of_one_axis();
  for (const Network& network : networks())
    for (const Case& how : cases) {
      SCOPED_TRACE(message(network.name, ", ", text_of(how.strategy), ", ", world.size(), " processes"));
      const Request request{
          .ranks = world.size(), .micro_batches = {2, 2}, .strategy = how.strategy, .precision = In::bf16};
      const Outcome found = train_over(world, network, request);
      if (world.rank() == 0) expect_same(found, train_sharded(network, request));
    }
}

/// All processes except rank 0, in reverse order: the rank numbers are those of the adopted communicator.
TEST(MpiForeignLoop, IsBitIdenticalOnAnAdoptedSubsetOfTheProcesses) {
  const Mpi& world = comm::mpi_world();
  if (world.size() == 1) return;
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank() == 0 ? MPI_UNDEFINED : 0, -world.rank(), &part);
  if (part == MPI_COMM_NULL) return;
  {
    Mpi adopted = Mpi::adopt(part);
    EXPECT_EQ(adopted.rank(), world.size() - 1 - world.rank());
    expect_parity(adopted, unet_network(), {cases_of_one_axis().front()}, {2, 2, 2, 2});
  }
  MPI_Comm_free(&part);
}

}  // namespace
}  // namespace fsdp::foreign
