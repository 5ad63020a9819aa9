// SPDX-License-Identifier: Apache-2.0
// What the operating system sees of a run, in a process of its own: a peak says nothing after other tests.
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

constexpr double mib = 1024.0 * 1024.0;

/// A line of /proc/self/status, in bytes.
double status_of(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) * 1024.0;
  return 0;
}

/// Some 200 MB over two ranks, two steps.
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

/// Runs only where the test below starts it.
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

TEST(ResidentMemory, GrowsByNoMoreThanThePlanAndALittle) {
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

TEST(ResidentMemory, IsGivenBackWithTheModelAndTheNextIsAsGood) {
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
