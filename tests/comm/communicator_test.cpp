// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/communicator.hpp>

#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/self.hpp>
#include <tessera/comm/simulated.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/communicator.hpp>

namespace fsdp::comm {
namespace {

static_assert(check_communicator<Self<>>() && check_communicator<Threads<>>() && check_communicator<Simulated<>>());
static_assert(!Communicator<int> && !Communicator<Monitor>);
static_assert(check_exchanges<Self<>>() && check_exchanges<Threads<>>() && check_exchanges<Simulated<>>());
static_assert(!ExchangingCommunicator<int>);
static_assert(AsyncRequest<Self<>::Request> && !AsyncRequest<int>);

/// Its reduce_scatter accepts a SumOrder, but returns no request in that case.
struct OrdersWithoutRequest : Self<> {
  template <class Wire>
  Request reduce_scatter(std::span<const Segment<float>> segments, Write write, Contributions contributions = {});
  template <class Wire>
  void reduce_scatter(std::span<const Segment<float>> segments, Write write, Contributions, SumOrder order);
};
static_assert(detail::Scatters<OrdersWithoutRequest> && detail::ScattersWith<OrdersWithoutRequest, Contributions> &&
              !detail::ScattersWith<OrdersWithoutRequest, Contributions, SumOrder> &&
              detail::ScattersWith<Self<>, Contributions, SumOrder> &&
              detail::ScattersWith<Simulated<>, Contributions, SumOrder>);

static_assert(supports_wire<Threads<>, bf16> && supports_wire<Self<>, float> && !supports_wire<Threads<>, double>);
static_assert(!std::is_copy_constructible_v<Pending<Self<>>> && std::movable<Pending<Self<>>>);

template <class Behaviour>
class Backends : public ::testing::Test {};
TYPED_TEST_SUITE(Backends, testing::AllBehaviours, testing::BehaviourName);

TYPED_TEST(Backends, SelfAlone) {
  Self<>::run({}, [](auto& c) { TypeParam::check(c); });
}

/// Records the SumOrder of every reduce_scatter.
struct NotesOrders : Self<> {
  using Self<>::Self;
  template <class Wire>
  Request reduce_scatter(std::span<const Segment<float>> segments, Write write, Contributions contributions,
                         SumOrder order) {
    orders.push_back(order);
    return Self<>::reduce_scatter<Wire>(segments, write, contributions, order);
  }
  template <class Wire>
  Request reduce_scatter(std::span<const Segment<float>> segments, Write write) {
    ADD_FAILURE() << "was not told the order";
    return Self<>::reduce_scatter<Wire>(segments, write);
  }
  NotesOrders split(int) { return NotesOrders(); }
  std::vector<SumOrder> orders;
};

TEST(SumOrders, ArePassedToTheBackend) {
  static_assert(check_communicator<NotesOrders>());
  NotesOrders c;
  const std::vector<std::int64_t> counts(1, 2);
  std::vector<float> full(2), local(2);
  const std::vector<Segment<float>> segments{{local.data(), full.data(), counts}};
  reduce_scatter<float>(c, segments, Write::overwrite).wait();
  reduce_scatter<float>(c, segments, Write::accumulate, {}, Contributions::spent, SumOrder::ranks).wait();
  EXPECT_EQ(c.orders, (std::vector{SumOrder::any, SumOrder::ranks}));
}

TEST(SumOrders, AreResetByTheNextTransfer) {
  Transfer transfer;
  transfer.order = SumOrder::ranks;
  describe(transfer, Op::reduce_scatter, DType::f32, DType::f32);
  EXPECT_EQ(transfer.order, SumOrder::any);
}

/// Runs under sanitizers too; the larger cases of the suite would take minutes there.
TEST(Threads, SumMoreElementsThanTheirScratchHolds) {
  testing::check_behaviour<Threads<>, testing::SumsMoreThanItsScratchHolds>({.in_words = "3 ranks", .ranks = 3});
}

}  // namespace
}  // namespace fsdp::comm

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Threads, CommunicatorSuite, comm::Threads<>);
INSTANTIATE_TYPED_TEST_SUITE_P(Threads, CommunicatorFaults, comm::Threads<>);

}  // namespace fsdp::testing
