// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/communicator.hpp>

#include <gtest/gtest.h>

#include <tessera/comm/self.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/communicator.hpp>

namespace fsdp::comm {
namespace {

static_assert(check_communicator<Self<>>() && check_communicator<Threads<>>() && check_communicator<Simulated<>>());
static_assert(!Communicator<int> && !Communicator<Monitor>);
static_assert(AsyncRequest<Self<>::Request> && !AsyncRequest<int>);
static_assert(supports_wire<Threads<>, bf16> && supports_wire<Self<>, float> && !supports_wire<Threads<>, double>);
static_assert(!std::is_copy_constructible_v<Pending<Self<>>> && std::movable<Pending<Self<>>>);

template <class Behaviour>
class Backends : public ::testing::Test {};
TYPED_TEST_SUITE(Backends, testing::AllBehaviours, testing::BehaviourName);

TYPED_TEST(Backends, SelfAlone) {
  Self<>::run({}, [](auto& c) { TypeParam::check(c); });
}

/// Runs under sanitizers as well, where the suite's larger ones take minutes.
TEST(Threads, SumMoreThanTheirScratchHolds) {
  testing::check_behaviour<Threads<>, testing::SumsMoreThanItsScratchHolds>({.in_words = "3 ranks", .ranks = 3});
}

}  // namespace
}  // namespace fsdp::comm

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Threads, CommunicatorSuite, comm::Threads<>);
INSTANTIATE_TYPED_TEST_SUITE_P(Threads, CommunicatorFaults, comm::Threads<>);

}  // namespace fsdp::testing
