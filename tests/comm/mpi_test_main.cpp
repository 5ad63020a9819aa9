// SPDX-License-Identifier: Apache-2.0
/// @file
/// main of the tests that run under mpirun: every process runs all tests; ranks above 0 print only failures.
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

#include "mpi_world.hpp"

namespace fsdp::comm {
namespace {

Mpi<>* world = nullptr;

/// Prints failed assertions with the rank, and nothing else. It must not query UnitTest for the current test:
/// GoogleTest holds that lock while it reports a failure.
class PrintFailures : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    test_ = std::string(test.test_suite_name()) + "." + test.name();
  }
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s: %s:%d: %s\n", world->rank(), test_.c_str(),
                 result.file_name() != nullptr ? result.file_name() : "?", result.line_number(), result.message());
  }

  std::string test_ = "?";
};

/// TESSERA_TEST_NO_WINDOWS lists ranks that act as if they were on other machines.
bool wants_windows() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(" ") + (value == nullptr ? "" : value) + " ";
  };
  return variable("TESSERA_TEST_NO_WINDOWS").find(variable("OMPI_COMM_WORLD_RANK")) == std::string::npos;
}

}  // namespace

Mpi<>& mpi_world() { return *world; }

}  // namespace fsdp::comm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const auto kept = fsdp::comm::Mpi<>::keep({});  // keeps MPI initialised between the two runs
  if (const int status = fsdp::comm::Mpi<>::run({}, [](fsdp::comm::Mpi<>&) { return 0; }); status != 0) return status;
  return fsdp::comm::Mpi<>::run({.windows = fsdp::comm::wants_windows()}, [](fsdp::comm::Mpi<>& communicator) {
    fsdp::comm::world = &communicator;
    if (communicator.rank() != 0) {
      ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
      delete listeners.Release(listeners.default_result_printer());
      listeners.Append(new fsdp::comm::PrintFailures);
    }
    return RUN_ALL_TESTS();
  });
}
