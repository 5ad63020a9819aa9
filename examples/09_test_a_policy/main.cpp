// SPDX-License-Identifier: Apache-2.0
// 09: test policies alone, with the suites that Tessera's own pass. The program is a GoogleTest: --gtest_list_tests
// shows what is asked, and a failure says in three lines what was asked, on which case, and what was found.
//
// Change next: a line of strategy.hpp or counting.hpp (forget a reduction; return before a gather), and read what
// fails. Then put your own type into a suite.
#include <vector>

#include <gtest/gtest.h>

#include <comm/threads.hpp>
#include <fsdp/testing/communicator.hpp>
#include <fsdp/testing/precision.hpp>
#include <fsdp/testing/strategy.hpp>
#include <fsdp/testing/tiling.hpp>

#include "../02_own_policies/policies.hpp"
#include "../04_own_strategy/strategy.hpp"
#include "../05_own_communicator/counting.hpp"

using namespace fsdp::testing;
using Ranks = mine::Counting<fsdp::comm::Threads<>>;

/// The numbers with which a policy is tested, where its default is not the one, or not all.
struct SomeTiles {
  static std::vector<mine::Tiles> policies() { return {mine::Tiles(1), mine::Tiles(3), mine::Tiles(500)}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorSuite, Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorFaults, Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, StrategySuite, mine::BySchedule);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, TilingSuite, SomeTiles);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, PrecisionSuite, mine::Precision);
