// SPDX-License-Identifier: Apache-2.0
// 09: test policies in isolation, with the suites that test Tessera's own policies.
//
// The program is a GoogleTest: --gtest_list_tests lists the tests. A failure reports, in three lines, the requirement,
// the case and the result.
//
// Try next: break a line of strategy.hpp or counting.hpp (skip a reduction, or return before a gather), and read which
// test fails. Then test a type of your own in a suite.
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/communicator.hpp>
#include <tessera/fsdp/testing/precision.hpp>
#include <tessera/fsdp/testing/strategy.hpp>
#include <tessera/fsdp/testing/tiling.hpp>

#include "../02_own_policies/policies.hpp"
#include "../04_own_strategy/strategy.hpp"
#include "../05_own_communicator/counting.hpp"

using namespace fsdp::testing;
using Ranks = mine::Counting<fsdp::comm::Threads<>>;

/// The values of a policy to test, if it has no default constructor or more values than the default are to be tested.
struct SomeTiles {
  static std::vector<mine::Tiles> policies() { return {mine::Tiles(1), mine::Tiles(3), mine::Tiles(500)}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorSuite, Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorFaults, Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, StrategySuite, mine::BySchedule);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, TilingSuite, SomeTiles);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, PrecisionSuite, mine::Precision);
