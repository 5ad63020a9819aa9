// SPDX-License-Identifier: Apache-2.0
// A rank that fails in any phase of a step ends the others at once, over Threads; mpi_faults_test.cpp is for processes.
#include <chrono>

#include <gtest/gtest.h>

#include <support/phases.hpp>
#include <support/small_llama.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

TEST(Faults, ARankThatThrowsInAnyPhaseEndsTheOthers) {
  for (const std::string_view phase : phases) {
    SCOPED_TRACE(phase);
    const TemporaryFolder folder;
    RunOptions options = uneven_options(3);
    options.steps = 3;
    options.collects = false;
    options.save_to = folder.path() / "checkpoint";
    options.before = failing(phase, 1, [] { throw InputError("ends alone"); });
    const auto begin = std::chrono::steady_clock::now();
    try {
      run("fsdp2", options);
      ADD_FAILURE() << "nothing failed";
    } catch (const InputError& error) {
      EXPECT_EQ(std::string_view(error.what()), "ends alone");
    }
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  }
}

}  // namespace
}  // namespace fsdp::test
