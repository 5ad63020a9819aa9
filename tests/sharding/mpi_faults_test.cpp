// SPDX-License-Identifier: Apache-2.0
// A rank that is killed or stopped in a phase of a step. Each case ends the whole job; therefore mpi_faults_test.py
// runs the test below once per case, with TESSERA_FAULT="PHASE SIGNAL". The test must not end by itself.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <comm/mpi_world.hpp>
#include <support/phases.hpp>
#include <support/small_llama.hpp>
#include <support/stacks/mpi_runners.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

TEST(MpiFaults, DISABLED_ARankEndsInAPhase) {
  const char* const fault = std::getenv("TESSERA_FAULT");
  ASSERT_NE(fault, nullptr) << "run by tests/sharding/mpi_faults_test.py";
  std::istringstream words(fault);
  std::string phase;
  int signal = 0;
  ASSERT_TRUE(words >> phase >> signal);

  comm::Mpi<>& world = comm::mpi_world();
  world.monitor().options.deadline = std::chrono::seconds(1);
  RunOptions options = uneven_options(world.size());
  options.steps = 3;
  options.collects = false;
  options.save_to = "checkpoint";
  options.before = failing(phase, 1, [signal] { std::raise(signal); });
  run_mpi("fsdp2", options);
  ADD_FAILURE() << "the run came to its end";
}

}  // namespace
}  // namespace fsdp::test
