// SPDX-License-Identifier: Apache-2.0
// Tensor memory equals the dry run to the byte, and views point into the buffers of collectives.
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

#include <support/sanitizer.hpp>
#include <support/small_llama.hpp>

namespace fsdp::test {
namespace {

/// Three steps, with an evaluation before and after them.
RunOptions with_evaluation(RunOptions options) {
  options.steps = 3;
  options.collects = false;
  options.evaluated = some_windows(options.fewer_sequences ? 1 : static_cast<std::size_t>(options.most_sequences),
                                   options.sequence_length, options.config.vocab_size);
  return options;
}

/// Sizes that divide by 2 and 4 and start at multiples of 64 elements.
RunOptions even_options(int ranks, int micro_batches) {
  RunOptions options = uneven_options(ranks, micro_batches);
  options.config = {.vocab_size = 64,
                    .hidden_size = 32,
                    .intermediate_size = 64,
                    .layers = 2,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 8};
  options.sequence_length = 16;
  options.batch = deal(some_windows(12, 16, 64));
  return options;
}

constexpr std::string_view stacks[] = {
    "fsdp2",    "fsdp2:no-reshard", "fsdp2:deferred", "zero1",      "zero2",
    "zero3",    "zero3:persist=40", "replicated",     "fsdp2/bf16", "fsdp2/layout=blocks/run-time",
    "hybrid:1", "hybrid:1:full"};

/// Expects the planned memory on all ranks. Returns the planned bytes of rank 0's activations.
std::int64_t expect_the_plan(std::string_view stack, RunOptions options) {
  options.fewer_sequences = false;
  const RunResults results = run(stack, with_evaluation(options));
  EXPECT_EQ(results.memory.size(), static_cast<std::size_t>(options.ranks));
  for (const Memory& memory : results.memory) {
    SCOPED_TRACE(message(stack, ", ", options.ranks, " ranks, ", options.micro_batches, " micro-batches, hidden ",
                         options.config.hidden_size, ", sequence ", options.sequence_length));
    EXPECT_GT(memory.used_activations, 0);
    EXPECT_EQ(memory.used, memory.planned);
    EXPECT_EQ(memory.used_activations, memory.planned_activations);
  }
  return results.memory.at(0).planned_activations;
}

TEST(Memory, PeakMemoryEqualsTheDryRunToTheByte) {
  for (const auto stack : stacks)
    for (const int ranks : sampled({1, 2, 3}))
      for (const int micro_batches : sampled({1, 2})) {
        expect_the_plan(stack, uneven_options(ranks, micro_batches));
        expect_the_plan(stack, even_options(ranks, micro_batches));
      }
}

TEST(Memory, PeakMemoryEqualsTheDryRunWithTiling) {
  for (const auto& tiling : sampled(
           {tiling::RunTimeTiling::tiles(2), tiling::RunTimeTiling::tokens(1000), tiling::RunTimeTiling::tokens(5)}))
    for (const auto stack : stacks) {
      RunOptions options = uneven_options(2);
      options.tiling = tiling;
      expect_the_plan(stack, options);
      options.config.tied = true;
      expect_the_plan(stack, options);
    }
}

TEST(Memory, PeakMemoryEqualsTheDryRunForOneTokenAndOneLayer) {
  RunOptions options = uneven_options(2);
  options.config.layers = 1;
  options.sequence_length = 1;
  options.most_sequences = 1;
  options.batch = deal(some_windows(2, 1, 37));
  for (const auto stack : stacks) expect_the_plan(stack, options);
}

/// The head is small, so that the peak is in the blocks, which need the memory for dropout under every strategy. In
/// bf16 the peak may be the matmul scratch instead, on processors that compute bf16 matmuls in float. With tiling and
/// recomputation, one stack of each precision suffices.
TEST(Memory, PeakMemoryEqualsTheDryRunForAdaptersWithDropout) {
  RunOptions options = uneven_options(2, 2);
  options.config.vocab_size = 11;
  options.config.intermediate_size = 48;
  options.batch = deal(some_windows(12, 7, 11));
  options.config.lora = {.rank = 2, .dropout = 0.25};
  for (const auto& tiling :
       {tiling::RunTimeTiling{}, tiling::RunTimeTiling::tokens(5), tiling::RunTimeTiling::budget(2500)})
    for (const bool recompute : {false, true})
      for (const auto stack : stacks) {
        const bool plain = tiling == tiling::RunTimeTiling{} && !recompute;
        if (!plain && stack != "fsdp2" && stack != "fsdp2/bf16") continue;
        options.tiling = tiling;
        options.units.recompute = recompute;
        const std::int64_t with = expect_the_plan(stack, options);
        if (!plain || stack.ends_with("/bf16")) continue;  // a budget may choose shorter tiles
        RunOptions without = options;
        without.config.lora.dropout = 0;
        EXPECT_GT(with, expect_the_plan(stack, without));
      }
}

TEST(Memory, UnequalMicroBatchesStayWithinThePlanForTheLargest) {
  RunOptions options = uneven_options(2, 2);
  options.most_sequences = 4;
  options.batch = [](const Place& place) {
    // 1 and 3 sequences on rank 0, 2 and 4 on rank 1
    return some_windows(static_cast<std::size_t>(1 + place.rank + 2 * place.micro_batch), 7, 37);
  };
  const RunResults results = run("fsdp2", with_evaluation(options));
  EXPECT_LT(results.memory[0].used_activations, results.memory[0].planned_activations);
  EXPECT_EQ(results.memory[1].used_activations, results.memory[1].planned_activations);
}

TEST(Memory, ASteadyStepAllocatesNoTensorMemory) {
  for (const auto stack : stacks)
    for (const int ranks : sampled({1, 3})) {
      const RunResults results = run(stack, with_evaluation(uneven_options(ranks, 2)));
      for (const Memory& memory : results.memory) {
        EXPECT_GT(memory.allocations_after_first_step, 0);
        EXPECT_EQ(memory.allocations_at_end, memory.allocations_after_first_step) << stack << ", " << ranks << " ranks";
      }
    }
}

/// The "watched" communicator compares every view with the memory of the group's last gather and next reduction.
TEST(Memory, WeightAndGradientViewsPointIntoCommunicationBuffers) {
  for (const int micro_batches : {1, 2}) {
    const RunResults results = run("watched", with_evaluation(uneven_options(3, micro_batches)));
    // 3 steps and 2 evaluations: 1 tensor of the embedding, 9 of each of 3 blocks, 2 of the head; those of the blocks
    // again in backward.
    const std::int64_t forward = 1 + 3 * 9 + 2, backward = 3 * 9, gradients = forward;
    for (const Memory& memory : results.memory)
      EXPECT_EQ(memory.views_checked, 3 * micro_batches * (forward + backward + gradients) + 2 * forward);
  }
}

TEST(Memory, TiedWeightViewsPointIntoTheirSlots) {
  RunOptions options = uneven_options(2);
  options.config.tied = true;
  EXPECT_GT(run("watched", with_evaluation(options)).memory.front().views_checked, 0);
}

TEST(Memory, ReshardingUsesTwoWeightSlotsAndOneGradientSlot) {
  for (const auto strategy : {"fsdp2", "zero3"}) {
    const Memory memory = run(strategy, with_evaluation(uneven_options(2, 2))).memory.front();
    EXPECT_EQ(memory.weight_slots, 2) << strategy;
    EXPECT_EQ(memory.gradient_slots, 1) << strategy;
  }
}

TEST(Memory, WithoutShardingViewsPointIntoTheBuffersAtRest) {
  for (const auto& [stack, ranks] : {std::pair("fsdp2", 1), std::pair("zero3", 1), std::pair("replicated", 3)}) {
    const Memory memory = run(stack, with_evaluation(uneven_options(ranks))).memory.front();
    EXPECT_EQ(memory.weight_slots, 0);
    EXPECT_EQ(memory.gradient_slots, 0);
    EXPECT_GT(memory.views_checked, 0);
  }
}

// The memory of a run as reported by the operating system, in a separate process: after other tests, the peak would be
// meaningless.

constexpr double mib = 1024.0 * 1024.0;

/// The value of a line of /proc/self/status in bytes.
double status_of(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) * 1024.0;
  return 0;
}

/// About 200 MB over two ranks, two steps.
RunOptions two_hundred_megabytes() {
  constexpr std::int64_t length = 48;
  return {.config = {.vocab_size = 2048,
                     .hidden_size = 512,
                     .intermediate_size = 1408,
                     .layers = 2,
                     .heads = 8,
                     .kv_heads = 4,
                     .head_dim = 64},
          .sequence_length = length,
          .most_sequences = 1,
          .ranks = 2,
          .steps = 2,
          .tiling = tiling::RunTimeTiling::tokens(20),
          .batch = deal(some_windows(2, length, 2048)),
          .evaluated = some_windows(1, length, 2048),
          .collects = false};
}

/// Runs only when the following test starts it.
TEST(ResidentMemory, DISABLED_OfThisProcessStaysWithinThePlan) {
  const RunOptions options = two_hundred_megabytes();
  const double before = status_of("VmRSS");
  const RunResults results = run("fsdp2", options);
  const double growth = status_of("VmHWM") - before;

  double planned = 0;
  for (const Memory& memory : results.memory) {
    EXPECT_EQ(memory.used, memory.planned);
    planned += static_cast<double>(std::accumulate(memory.planned.begin(), memory.planned.end(), std::int64_t{0}));
  }
  EXPECT_GT(planned, 150 * mib);
  EXPECT_GT(growth, 0.8 * planned) << "memory that is never touched is not seen here";
  EXPECT_LE(growth, 1.02 * planned + 16 * mib) << "grew by " << growth / mib << " MiB; planned were " << planned / mib;
}

TEST(ResidentMemory, StaysWithinThePlanPlusASmallMargin) {
  if (sanitized) GTEST_SKIP() << "a sanitizer's own memory is resident too";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::execl("/proc/self/exe", "resident_memory", "--gtest_filter=*DISABLED_OfThisProcessStaysWithinThePlan",
            "--gtest_also_run_disabled_tests", "--gtest_brief=1", static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "what failed is printed above; status " << status;
}

TEST(ResidentMemory, IsReleasedWithTheModelAndRepeatedRunsAreIdentical) {
  if (sanitized) GTEST_SKIP() << "a sanitizer keeps what is freed";
  const RunOptions options = two_hundred_megabytes();
  const RunResults first = run("fsdp2", options);
  const double rest = status_of("VmRSS");
  const RunResults second = run("fsdp2", options);
  EXPECT_LE(status_of("VmRSS") - rest, 16 * mib);
  EXPECT_EQ(second.losses, first.losses);
  EXPECT_EQ(second.memory.front().used, first.memory.front().used);
}

}  // namespace
}  // namespace fsdp::test
