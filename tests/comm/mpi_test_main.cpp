// SPDX-License-Identifier: Apache-2.0
/// @file
/// main of the tests that run under mpirun: every process runs all tests; those after the first print only failures.
#include <gtest/gtest.h>

#include "mpi_world.hpp"

namespace fsdp::comm {
namespace {

Mpi<>* world = nullptr;

/// Prints failed assertions with the rank, and nothing else.
class PrintFailures : public ::testing::EmptyTestEventListener {
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "rank %d: %s: %s:%d: %s\n", world->rank(), test != nullptr ? test->name() : "?",
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(), result.message());
  }
};

}  // namespace

Mpi<>& mpi_world() { return *world; }

}  // namespace fsdp::comm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return fsdp::comm::Mpi<>::run({}, [](fsdp::comm::Mpi<>& communicator) {
    fsdp::comm::world = &communicator;
    if (communicator.rank() != 0) {
      ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new fsdp::comm::PrintFailures);
    }
    return RUN_ALL_TESTS();
  });
}
