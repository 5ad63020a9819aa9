// SPDX-License-Identifier: Apache-2.0
// Main weights, optimizer state and block inputs in a second memory space: bit-identical results, different memory.
#include <gtest/gtest.h>

#include <support/small_llama.hpp>
#include <support/stacks/own_schedule.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

using device::MemoryKind;

RunOptions few_steps(int ranks, int micro_batches) { return with_steps(3, uneven_options(ranks, micro_batches)); }

void expect_same_bits_and_plan(const RunResults& found, const RunResults& expected) {
  expect_same_bits(found, expected);
  expect_planned_bytes(found);
  for (const Memory& memory : found.memory) {
    EXPECT_GT(memory.used_offload, 0);
    EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step);
  }
}

TEST(Offload, OffloadingTheOptimizerIsBitIdentical) {
  for (const auto& [far, near, ranks] :
       {std::tuple("fsdp2/offload", "fsdp2", 3), std::tuple("fsdp2/offload", "fsdp2", 1),
        std::tuple("hybrid:2:full/offload/bf16", "hybrid:2:full/bf16", 4)}) {
    SCOPED_TRACE(far);
    const RunResults found = run(far, few_steps(ranks, 2));
    const RunResults expected = run(near, few_steps(ranks, 2));
    expect_same_bits_and_plan(found, expected);
    EXPECT_EQ(used_bytes(found, MemoryKind::optimizer), 0);
    EXPECT_LE(used_bytes(found, MemoryKind::weights), used_bytes(expected, MemoryKind::weights));
    EXPECT_GE(found.memory[0].used_offload, used_bytes(expected, MemoryKind::optimizer) * 3 / 2);
  }
}

TEST(Offload, OffloadingBlockInputsIsBitIdenticalAndSavesActivations) {
  for (const auto stack : {"fsdp2", "fsdp2/offload", "zero3"})
    for (const int micro_batches : {1, 2}) {
      RunOptions options = few_steps(2, micro_batches);
      options.units.recompute = true;
      const RunResults here = run(stack, options);
      options.units.offload_inputs = 1;
      const RunResults far = run(stack, options);
      expect_same_bits_and_plan(far, here);
      const std::int64_t stream = round_up(options.most_sequences * 7 * 19 * 4, device::alignment);  // [T, H]
      EXPECT_EQ(far.memory[0].used_offload - here.memory[0].used_offload, 2 * stream)
          << "an input of each of 3 blocks but the last";
      EXPECT_LT(far.memory[0].used_activations, here.memory[0].used_activations);
    }
}

/// With 6 blocks, each input in host memory saves exactly one input on the device, to the byte.
TEST(Offload, AShareOfBlockInputsSavesThatManyOnTheDevice) {
  RunOptions options = few_steps(2, 2);
  options.config.layers = 6;
  options.units.recompute = true;
  const RunResults here = run("fsdp2", options);
  const std::int64_t stream = round_up(options.most_sequences * 7 * 19 * 4, device::alignment);  // [T, H]
  for (const auto& [share, count] : {std::pair(0.01, 1), std::pair(1 / 3.0, 2), std::pair(0.5, 3), std::pair(0.51, 4),
                                     std::pair(0.9, 5), std::pair(1.0, 5)}) {
    SCOPED_TRACE(share);
    options.units.offload_inputs = share;
    const RunResults far = run("fsdp2", options);
    expect_same_bits_and_plan(far, here);
    EXPECT_EQ(far.memory[0].used_offload, count * stream);
    EXPECT_EQ(here.memory[0].used_activations - far.memory[0].used_activations, count * stream);
  }
}

TEST(Offload, InputMovesAreAddedToAUserDefinedSchedule) {
  RunOptions options = few_steps(2, 2);
  options.units = {.recompute = true, .offload_inputs = 1};
  const RunResults built_in = run("fsdp2", options), own = run_own_schedule(options);
  expect_same_bits_and_plan(own, built_in);
  EXPECT_EQ(own.memory[0].used_offload, built_in.memory[0].used_offload);
}

TEST(Offload, AFrozenPrefixOffloadsNoInputs) {
  RunOptions options = uneven_options(2);
  for (const double share : {0.5, 1.0}) {
    options.units = {.recompute = true, .frozen = {"*embed*", "model.layers.0.*"}};
    const RunResults here = run("fsdp2", options);
    options.units.offload_inputs = share;
    const RunResults far = run("fsdp2", options);
    expect_same_bits_and_plan(far, here);
  }
}

TEST(Offload, OffloadingInputsWithoutRecomputationIsAnError) {
  RunOptions options = uneven_options(2);
  options.units.offload_inputs = 1;
  EXPECT_INPUT_ERROR(run("fsdp2", options), "recompute the rest as well");
  options.units = {.recompute = true, .offload_inputs = 1.5};
  EXPECT_INPUT_ERROR(run("fsdp2", options), "units: a share of 1.5 of the blocks' inputs in host memory; give 0 to 1");
}

TEST(Offload, ResumesFromACheckpointWithoutOffload) {
  const TemporaryFolder folder;
  run("fsdp2", saving(3, folder.path()));
  expect_resumed(run("fsdp2/offload", resuming(3, 10, folder.path())), run("fsdp2", uneven_options(3)));
}

/// Halves the bytes of every reduction; each contribution is rounded once, to 8 bits.
TEST(Wire, Bf16WireHalvesReductionBytesAndMatchesFloat) {
  const RunResults narrow = run("fsdp2/bf16-wire", uneven_options(3));
  const RunResults wide = run("fsdp2", uneven_options(3));
  expect_same_collectives(narrow, wide, comm::Op::reduce_scatter, 2);
  const double error = largest_relative(narrow.gradients, wide.gradients);
  EXPECT_LE(error, 1.0 / 128);
  EXPECT_GT(error, 1e-5) << "nothing was rounded";
  EXPECT_LE(largest_relative(narrow.losses, wide.losses), 0.01);
}

}  // namespace
}  // namespace fsdp::test
