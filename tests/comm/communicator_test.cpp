// SPDX-License-Identifier: Apache-2.0
#include <comm/communicator.hpp>

#include <gtest/gtest.h>

#include <comm/self.hpp>
#include <comm/simulated.hpp>
#include <comm/threads.hpp>

#include "contract_behaviours.hpp"

namespace fsdp::comm {
namespace {

static_assert(check_communicator<Self<>>() && check_communicator<Threads<>>() && check_communicator<Simulated<>>());
static_assert(!Communicator<int> && !Communicator<Monitor>);
static_assert(AsyncRequest<Self<>::Request> && !AsyncRequest<int>);
static_assert(supports_wire<Threads<>, bf16> && supports_wire<Self<>, float> && !supports_wire<Threads<>, double>);
static_assert(!std::is_copy_constructible_v<Pending<Self<>>> && std::movable<Pending<Self<>>>);

template <class Behaviour>
class Backends : public ::testing::Test {};
TYPED_TEST_SUITE(Backends, AllBehaviours, BehaviourName);

TYPED_TEST(Backends, SelfAlone) {
  Self<>::run({}, [](auto& c) { TypeParam::check(c); });
}

TYPED_TEST(Backends, ThreadsOfAnyNumber) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(ranks);
    Threads<>::run(ranks, {}, [](auto& c) { TypeParam::check(c); });
  }
}

TYPED_TEST(Backends, ThreadsWithChecksOn) {
  Threads<>::run(3, {.checks = true}, [](auto& c) { TypeParam::check(c); });
}

TYPED_TEST(Backends, APartOfThreads) {
  Threads<>::run(5, {}, [](auto& c) {
    auto part = split(c, [](int rank) { return rank < 3 ? 0 : 1; });
    TypeParam::check(part);
  });
}

}  // namespace
}  // namespace fsdp::comm
