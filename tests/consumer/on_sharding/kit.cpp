// SPDX-License-Identifier: Apache-2.0
// The kit's suites with user-defined types; needs only tessera::sharding.
#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/communicator.hpp>
#include <tessera/fsdp/testing/device.hpp>
#include <tessera/fsdp/testing/foreign_loop.hpp>
#include <tessera/fsdp/testing/precision.hpp>
#include <tessera/fsdp/testing/strategy.hpp>

#include "../../../examples/04_own_strategy/strategy.hpp"
#include "../../../examples/05_own_communicator/counting.hpp"
#include "../../foreign/wrong_loops.hpp"

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Consumers, ForeignLoopSuite, foreign::FlawedLoop);
INSTANTIATE_TYPED_TEST_SUITE_P(Consumers, StrategySuite, mine::BySchedule);
INSTANTIATE_TYPED_TEST_SUITE_P(Consumers, CommunicatorSuite, mine::Counting<comm::Threads<>>);
INSTANTIATE_TYPED_TEST_SUITE_P(Consumers, PrecisionSuite, Fp32);

}  // namespace fsdp::testing
