// SPDX-License-Identifier: Apache-2.0
// Over Threads, a rank that fails in any phase of a step stops the others at once; mpi_faults_test.cpp tests processes.
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include <support/phases.hpp>
#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

/// Three steps and a checkpoint on three ranks; rank 1 fails when it reaches the phase.
RunOptions faulty(std::string_view phase, const TemporaryFolder& folder, std::function<void()> fail) {
  RunOptions options = with_steps(3, uneven_options(3));
  options.collects = false;
  options.save_to = folder.path() / "checkpoint";
  options.before = failing(phase, 1, std::move(fail));
  return options;
}

TEST(Faults, ARankThatThrowsInAnyPhaseStopsTheOthers) {
  for (const std::string_view phase : phases) {
    SCOPED_TRACE(phase);
    const TemporaryFolder folder;
    const RunOptions options = faulty(phase, folder, [] { throw InputError("ends alone"); });
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(error_of<InputError>([&] { run("fsdp2", options); }), "ends alone");
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
}

/// To its peers, a sleeping rank looks like a stopped process. They do not wait until it wakes.
TEST(Faults, ARankThatHangsInAnyPhaseIsReportedAtTheDeadline) {
  for (const std::string_view phase : phases) {
    SCOPED_TRACE(phase);
    const TemporaryFolder folder;
    RunOptions options = faulty(phase, folder, [] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
    options.deadline = std::chrono::milliseconds(500);
    expect_parts(error_of<comm::CollectiveError>([&] { run("fsdp2", options); }), {"waited 0.", "rank 1 (has"});
  }
}

}  // namespace
}  // namespace fsdp::test
