// SPDX-License-Identifier: Apache-2.0
// The counted traffic of a step, and when a communicator is notified of the end of a run.
#include <tessera/comm/monitor.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <support/nets.hpp>

namespace fsdp::test {
namespace {

using comm::Calls;
using comm::Op;

constexpr int units = 3;
constexpr int micro_batches = 2;
constexpr std::int64_t unit_bytes = (net::width * net::width + net::width) * std::int64_t{sizeof(float)};
constexpr std::int64_t flat_bytes = 2 * 64 * std::int64_t{sizeof(float)};  ///< two padded tensors

std::string in_words(const comm::MeshTraffic& traffic) {
  std::string text;
  comm::MeshTraffic::visit(traffic, [&](const char* axis, const comm::Traffic& counted) {
    for (const Op op : comm::all_ops)
      if (const Calls& each = counted[op]; each != Calls{})
        text += message(axis, ": ", each.calls, " ", comm::name_of(op), " of ", each.bytes, " bytes; ");
  });
  return text;
}

/// The all-gather of a step's losses and squared gradients.
Calls decision(int ranks) { return {.calls = 1, .bytes = ranks * (2 + micro_batches) * std::int64_t{sizeof(double)}}; }
/// A number of identical collectives with their bytes.
struct Alike {
  Op op;
  std::int64_t calls, bytes;
};
comm::Traffic sum_of(std::initializer_list<Alike> list) {
  comm::Traffic sum;
  for (const Alike& each : list) sum[each.op] += {.calls = each.calls, .bytes = each.calls * each.bytes};
  return sum;
}

/// Expects that every rank counts `expected` in each of two steps of three units and two micro-batches.
template <class Sharding>
void expect_step(int ranks, const Sharding& strategy, comm::MeshTraffic expected) {
  SCOPED_TRACE(message(policy_text(strategy), ", ", ranks, " ranks"));
  if (ranks > 1) expected.world[Op::all_gather] += decision(ranks);
  on_ranks(ranks, [&](Comm& communicator) {
    Initialized<Sharding> sharded(communicator, net::units(units), strategy, {.micro_batches = micro_batches});
    for (int step = 0; step < 2; ++step) {
      const comm::MeshTraffic before = sharded.traffic();
      net::steps(sharded, {.uses = {0, 1, 2}, .micro_batches = micro_batches, .step = step}, 1);
      EXPECT_EQ(in_words(sharded.traffic() - before), in_words(expected)) << "rank " << communicator.rank();
    }
  });
}

TEST(Traffic, OfAStepMatchesItsSchedule) {
  constexpr int uses = units * micro_batches;         // in forward
  constexpr int again = (units - 1) * micro_batches;  // gathered again in backward: all but the last unit's weights
  for (const int ranks : {2, 3})
    expect_step(
        ranks, RunTimeAny{.strategy = FullyShard<>{}},
        {.world = sum_of({{Op::all_gather, uses + again, unit_bytes}, {Op::reduce_scatter, uses, unit_bytes}})});
  expect_step(2, RunTimeAny{.strategy = FullyShard<ReshardAfterForward::no>{}},
              {.world = sum_of({{Op::all_gather, uses, unit_bytes}, {Op::reduce_scatter, uses, unit_bytes}})});
  // A unit is two groups: its matrix, and its bias, which is gathered once a step.
  expect_step(2, RunTimeAny{.strategy = Zero3{.persistence_threshold = net::width}},
              {.world = sum_of(
                   {{Op::all_gather, uses + again + units, flat_bytes}, {Op::reduce_scatter, 2 * uses, flat_bytes}})});
  expect_step(2, Replicated{}, {.world = sum_of({{Op::all_reduce, units, flat_bytes}})});
  expect_step(1, RunTimeAny{.strategy = FullyShard<>{}}, {});
}

TEST(Traffic, OnAMeshIsCountedByAxis) {
  constexpr int uses = units * micro_batches, again = (units - 1) * micro_batches;
  expect_step(4, RunTimeAny{.strategy = HybridShard<RunTimeSharded>{.group = 2}},
              {.across = sum_of({{Op::all_reduce, units, flat_bytes}}),
               .shard = sum_of({{Op::all_gather, uses + again, unit_bytes}, {Op::reduce_scatter, uses, unit_bytes}})});
  expect_step(4, RunTimeAny{.strategy = FullyShard<ReshardAfterForward::to_group>{.group = 2}},
              {.world = sum_of({{Op::all_gather, uses, unit_bytes}, {Op::reduce_scatter, uses, unit_bytes}}),
               .shard = sum_of({{Op::all_gather, again, unit_bytes}})});
}

/// Threads that records each end of a run with the number of collectives called before.
class Told : public comm::Threads<> {
 public:
  [[maybe_unused]] static constexpr std::string_view name = "told";
  Told(comm::Threads<>&& inner, std::vector<std::string>& ends) : comm::Threads<>(std::move(inner)), ends_(&ends) {}

  Told split(int color) { return Told(comm::Threads<>::split(color), *ends_); }
  void end_run(std::string_view axis) noexcept { ends_->push_back(message(axis, " of ", size(), in_calls())); }
  std::string in_calls() { return message(" after ", monitor().sequence); }

 private:
  std::vector<std::string>* ends_;
};
static_assert(comm::check_communicator<Told>());

using ToldNet = Sharded<Stack<HybridShard<FullyShard<>>, Told, Fp32>>;

/// Calls body(communicator, ends) on each of four ranks; `ends` lists the notifications of the communicators.
template <class Body>
void on_told_ranks(const Body& body) {
  comm::Threads<>::run(4, {}, [&](comm::Threads<>& inner) {
    std::vector<std::string> ends;
    Told communicator(std::move(inner), ends);
    body(communicator, ends);
  });
}

TEST(EndOfARun, IsReportedOncePerCommunicatorAfterTheLastCollective) {
  on_told_ranks([](Told& communicator, std::vector<std::string>& ends) {
    for (std::size_t run = 1; run <= 2; ++run) {
      {
        ToldNet sharded(communicator, net::units(2), {.group = 2});
        sharded.initialize(1);
        net::steps(sharded, {.uses = {0, 1}}, 1);
        EXPECT_EQ(ends.size(), 3 * (run - 1));
      }
      ASSERT_EQ(ends.size(), 3 * run);
      EXPECT_EQ(ends[3 * run - 3], "world of 4" + communicator.in_calls());
      EXPECT_TRUE(ends[3 * run - 2].starts_with("across of 2 after ")) << ends[3 * run - 2];
      EXPECT_TRUE(ends[3 * run - 1].starts_with("shard of 2 after ")) << ends[3 * run - 1];
    }
  });
}

TEST(EndOfARun, IsReportedAfterAnErrorButNotIfNoRunBegan) {
  on_told_ranks([](Told& communicator, std::vector<std::string>& ends) {
    const auto train = [&](const ToldNet::Settings& settings) {
      ToldNet sharded(communicator, net::units(2), {.group = 2}, settings);
      sharded.initialize(1);
      sharded.step(net::train(sharded, {.uses = {0, 1}}) + NAN, {.lr = 1});
    };
    EXPECT_THROW(train({.budget = 1}), MemoryError);
    EXPECT_EQ(ends, std::vector<std::string>{});
    EXPECT_THROW(train({}), DivergedError);
    EXPECT_EQ(ends.size(), 3u);
    EXPECT_EQ(ends.front(), "world of 4" + communicator.in_calls());
  });
}

}  // namespace
}  // namespace fsdp::test
