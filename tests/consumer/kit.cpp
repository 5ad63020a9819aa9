// SPDX-License-Identifier: Apache-2.0
// Policies of somebody else's, proven by the suites that Tessera's own pass. docs/testing.md tells what each asks.
#include <vector>

#include <gtest/gtest.h>

#include <fsdp/testing/communicator.hpp>
#include <fsdp/testing/precision.hpp>
#include <fsdp/testing/strategy.hpp>
#include <fsdp/testing/tiling.hpp>

#include "foreign.hpp"

using namespace fsdp::testing;

/// The numbers with which policies are tested.
struct SomeSharding {
  static std::vector<mine::Sharding> strategies() { return {{.ahead = 1}, {.ahead = 3}}; }
};
struct SomeTiles {
  static std::vector<mine::Tiles> policies() { return {mine::Tiles(1), mine::Tiles(9), mine::Tiles(5000)}; }
};

INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorSuite, mine::Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CommunicatorFaults, mine::Ranks);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, StrategySuite, SomeSharding);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, TilingSuite, SomeTiles);
INSTANTIATE_TYPED_TEST_SUITE_P(Mine, PrecisionSuite, mine::Precision);
