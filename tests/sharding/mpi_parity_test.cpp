// SPDX-License-Identifier: Apache-2.0
// Processes do the same arithmetic as threads: rank 0 also runs the same ranks as threads and compares.
#include <chrono>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

#include <comm/mpi_world.hpp>
#include <support/small_llama.hpp>
#include <support/stacks/mpi_runners.hpp>
#include <tessera/comm/collectives.hpp>

namespace fsdp::test {
namespace {

/// parity_test.cpp compares the strategies with each other over threads.
TEST(MpiParity, EveryStrategyIsBitIdenticalToThreads) {
  const int ranks = comm::mpi_world().size();
  for (const auto strategy : {"fsdp2", "fsdp2:no-reshard", "fsdp2:deferred", "zero1", "zero2", "zero3", "replicated",
                              "fsdp2:2", "hybrid:1", "hybrid:2", "hybrid:1:full", "hybrid:2:full"}) {
    if (ranks % ranks_per_group(strategy) != 0) continue;
    for (const int micro_batches : {1, 3})
      for (const bool recompute : {false, true}) {
        SCOPED_TRACE(message(strategy, ", ", micro_batches, " micro-batches", recompute ? ", recomputed" : ""));
        RunOptions options = uneven_options(ranks, micro_batches);
        options.units.recompute = recompute;
        const RunResults found = run_mpi(strategy, options);
        EXPECT_EQ(found.losses.size(), 10u);
        EXPECT_EQ(found.memory.front().used, found.memory.front().planned);
        if (comm::mpi_world().rank() != 0) continue;
        const RunResults threads = run(strategy, options);
        expect_same_bits(found, threads);
        EXPECT_EQ(found.norms, threads.norms);
        expect_same_tensors(found.initial, threads.initial);
      }
  }
}

/// Ranks own tensors of different sizes.
TEST(MpiParity, RanksThatOwnWholeTensorsAreBitIdenticalToThreads) {
  const int ranks = comm::mpi_world().size();
  const RunOptions options = uneven_options(ranks, 2);
  for (const auto strategy : {"fsdp2", "zero2"}) {
    const RunResults found = run_mpi(strategy, options, buffer::Owned{});
    EXPECT_EQ(found.memory.front().used, found.memory.front().planned);
    if (comm::mpi_world().rank() != 0) continue;
    const RunResults threads = run(strategy, options);
    expect_same_bits(found, threads);
  }
}

TEST(MpiParity, CollectivesReadPeersSharedMemoryInPlace) {
  comm::Mpi<>& world = comm::mpi_world();
  std::int64_t windows = comm::shared_memory(world, 1) != nullptr;
  comm::reduce(world, std::span<std::int64_t>(&windows, 1), comm::Reduction::min);
  if (windows == 0) return;  // a single rank, or ranks that simulate other machines
  const comm::Totals& totals = world.monitor().totals;
  for (const auto strategy : strategies) {
    RunOptions options = uneven_options(world.size());
    options.steps = 2;
    options.collects = false;
    const comm::Totals before = totals;
    run_mpi(strategy, options);
    // A gather also copies the rank's own piece. With two ranks, 11 of 20 bytes are reached only if both weights and
    // gradients are read in place.
    const std::int64_t copied = totals.copied_bytes - before.copied_bytes;
    EXPECT_GT(totals.shared_bytes - before.shared_bytes, copied * 11 / 20) << strategy << " of " << copied;
  }
}

TEST(MpiParity, DelaysBeforeCollectivesGiveBitIdenticalResults) {
  RunOptions options = uneven_options(comm::mpi_world().size());
  options.steps = 4;
  const RunResults usual = run_mpi("fsdp2", options);
  options.before = comm::random_delays(2, std::chrono::microseconds(300));
  const RunResults delayed = run_mpi("fsdp2", options);
  expect_same_bits(delayed, usual);
}

TEST(MpiParity, UnequalMicroBatchesMatchTheGradientsOfThreads) {
  RunOptions options = uneven_options(comm::mpi_world().size(), 2);
  options.most_sequences = 2 * options.ranks;
  options.steps = 2;
  options.batch = [](const Place& place) {
    return some_windows(static_cast<std::size_t>(place.rank + place.ranks * place.micro_batch), 7,
                        37);  // rank 0 has no window in its first micro-batch
  };
  const RunResults found = run_mpi("fsdp2", options);
  if (comm::mpi_world().rank() != 0) return;
  const RunResults threads = run("fsdp2", options);
  EXPECT_EQ(found.losses, threads.losses);
  expect_same_tensors(found.gradients, threads.gradients);
}

}  // namespace
}  // namespace fsdp::test
