// SPDX-License-Identifier: Apache-2.0
// Options::checks detects ranks that set different weights; a source rank makes replicas equal.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>

#include <support/nets.hpp>
#include <support/temporary_folder.hpp>

namespace fsdp::test {
namespace {

const RunTimeAny shards{.strategy = FullyShard<>{}};
const RunTimeAny groups_of_two{.strategy = HybridShard<RunTimeSharded>{.group = 2}};

/// Expects that call(sharded, rank) is refused on every rank, without a write, and that call(sharded, 0) is accepted.
template <class Sharding, class Call>
void expect_found(const Sharding& strategy, int ranks, const std::string& text, const Call& call,
                  const UnitOptions& unit_options = {}) {
  SCOPED_TRACE(policy_text(strategy));
  on_ranks(ranks, [&](Comm& communicator) {
    Initialized<Sharding> sharded(communicator, net::units(2), strategy, {.unit_options = unit_options});
    EXPECT_INPUT_ERROR(call(sharded, communicator.rank()), text);
    call(sharded, 0);
  });
}

const auto sets = [](auto& sharded, int rank) {
  net::Values values(net::width, 0.5f);
  values[3] += rank == 1 ? 1e-6f : 0;
  sharded.set("unit1.b", values);
};
/// Ranks 1 and 3 fill with different values.
const auto fills = [](auto& sharded, int rank) {
  sharded.fill([&](const Parameter& parameter, std::int64_t, std::span<float> part) {
    std::ranges::fill(part, parameter.name == "unit1.b" && rank % 2 == 1 ? static_cast<float>(rank) : 0.5f);
  });
};

TEST(Replicas, DifferentSetValuesAreReportedOnEveryRank) {
  const auto check = [](const auto& strategy, int ranks) {
    expect_found(strategy, ranks,
                 "set: ranks give other weights: rank 0 has 'hash of the 5 elements of unit1.b = ", sets);
    expect_found(strategy, ranks, "set: ranks give other weights", [](auto& sharded, int rank) {
      sharded.set(rank == 1 ? "unit0.b" : "unit1.b", net::Values(net::width));
    });
    expect_found(strategy, ranks,
                 "initialize: ranks give other seeds for all tensors: rank 0 has 'seed = 4', rank 1 has 'seed = 5'",
                 [](auto& sharded, int rank) { sharded.initialize(rank == 1 ? 5 : 4); });
  };
  check(shards, 2);
  check(Replicated{}, 3);
  check(groups_of_two, 4);
}

TEST(Replicas, DifferentFillValuesAreReportedOnEveryRank) {
  expect_found(Replicated{}, 3, "fill: rank 1 has other values of 'unit1.b' than rank 0, and both hold the same",
               fills);
  expect_found(groups_of_two, 4, "fill: rank 3 has other values of 'unit1.b' than rank 1, and both hold the same",
               fills);
  expect_found(shards, 2, "fill: rank 1 has other values of 'unit1.b' than rank 0", fills, {.replicated = {"unit1.b"}});
  on_ranks(2, [](Comm& communicator) {  // no element is replicated
    Net<RunTimeAny> sharded(communicator, net::units(2), shards);
    EXPECT_NO_THROW(fills(sharded, communicator.rank()));
  });
}

TEST(Replicas, AreNotComparedWithoutChecks) {
  Comm::run(2, {}, [](Comm& communicator) {
    Net<RunTimeAny> sharded(communicator, net::units(2), shards);
    const auto& monitor = communicator.monitor();
    const auto before = monitor.sequence;
    sharded.initialize(1);
    sets(sharded, communicator.rank());
    fills(sharded, communicator.rank());
    EXPECT_EQ(monitor.sequence, before) << "collectives were made";
  });
}

/// With a source rank, all ranks of all groups receive the values that it wrote.
TEST(Replicas, BroadcastingOneRanksWeightsMakesReplicasEqual) {
  const auto check = [](const auto& strategy, int ranks) {
    SCOPED_TRACE(policy_text(strategy));
    std::array<std::map<std::string, net::Values>, 4> before, after;
    Comm::run(ranks, {}, [&](Comm& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      Net<std::remove_cvref_t<decltype(strategy)>> sharded(communicator, net::units(2), strategy);
      sharded.initialize(rank);
      before[rank] = net::weights(sharded);
      const auto add_rank = [&](const Parameter&, Tensor<float> whole) {
        for (float& value : std::span(whole.data(), static_cast<std::size_t>(whole.numel())))
          value += static_cast<float>(rank);
      };
      with_full_parameters(sharded.module(), {"*"}, add_rank, Access::write, 1);
      after[rank] = net::weights(sharded);
    });
    EXPECT_NE(before[0], before[static_cast<std::size_t>(ranks - 1)]) << "replicas that do not differ prove nothing";
    for (auto& [name, values] : before[1])
      for (float& value : values) value += 1;
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(after[static_cast<std::size_t>(rank)], before[1]) << rank;
  };
  check(Replicated{}, 3);
  check(groups_of_two, 4);
}

}  // namespace
}  // namespace fsdp::test
