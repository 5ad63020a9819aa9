// SPDX-License-Identifier: Apache-2.0
// Statistics, small tensors that are not parameters: how a step merges the values of the ranks.
#include <tessera/fsdp/optim/statistics.hpp>

#include <gtest/gtest.h>

#include <range/v3/view/enumerate.hpp>

#include <vector>

#include <support/nets.hpp>

namespace fsdp::test {
namespace {

using Merge = Statistic::Merge;

const std::vector<Statistic> four = {{.name = "seen", .shape = Shape{}, .merge = Merge::own},
                                     {.name = "running_mean", .shape = {7}, .initial = Initial::normal(1)},
                                     {.name = "codebook", .shape = {2, 3}, .merge = Merge::first},
                                     {.name = "running_deviation", .shape = {3}, .initial = Initial::ones}};

/// The value that rank `rank` writes to element i of a statistic.
float written(int rank, std::int64_t i) { return 1.0f / static_cast<float>(3 + rank) + static_cast<float>(i); }

template <class Sharding>
void merges(int ranks, const Sharding& strategy) {
  SCOPED_TRACE(message(policy_text(strategy), ", ", ranks, " ranks"));
  on_ranks(ranks, [&](Comm& communicator) {
    Net<Sharding> sharded(communicator, net::units(2), strategy, {.statistics = four});
    EXPECT_EQ(sharded.statistic("running_deviation")[2], 1.0f) << "where weights are filled, set or loaded";
    sharded.initialize(1);
    const std::vector<float> initial(sharded.statistic("running_mean").data(),
                                     sharded.statistic("running_mean").data() + 7);
    const std::uint64_t key = mixed(1) ^ hashed(hash_seed, std::string_view("running_mean"));
    for (const auto& [i, value] : ranges::views::enumerate(initial))
      EXPECT_EQ(value, static_cast<float>(optim::normal_at(key, static_cast<std::int64_t>(i))));
    EXPECT_EQ(sharded.statistic("codebook").shape(), (Shape{2, 3}));
    EXPECT_EQ(sharded.statistic("seen").numel(), 1);

    for (int step = 0; step < 2; ++step) {
      for (const Statistic& each : four) {
        const Tensor<float> values = sharded.statistic(each.name);
        for (std::int64_t i = 0; i < values.numel(); ++i) values.data()[i] = written(communicator.rank(), i);
      }
      net::steps(sharded, {.uses = {0, 1}, .step = step}, 1);
      EXPECT_EQ(sharded.statistic("seen").data()[0], written(communicator.rank(), 0));
      for (std::int64_t i = 0; i < 7; ++i) {
        float sum = written(0, i);
        for (int rank = 1; rank < ranks; ++rank) sum += written(rank, i);
        EXPECT_EQ(sharded.statistic("running_mean")[i], ranks == 1 ? sum : sum * (1.0f / static_cast<float>(ranks)));
      }
      for (std::int64_t i = 0; i < 6; ++i) EXPECT_EQ(sharded.statistic("codebook").data()[i], written(0, i));
    }
    EXPECT_EQ(sharded.held().bytes, sharded.planned().bytes);
  });
}

TEST(Statistics, AreKeptAveragedOrTakenFromRankZero) {
  for (const int ranks : {1, 2, 3}) merges(ranks, RunTimeAny{.strategy = FullyShard<>{}});
  merges(2, Replicated{});
}

TEST(Statistics, RefuseDuplicateEmptyOrUnknownNames) {
  on_ranks(1, [](Comm& communicator) {
    const auto with = [&](std::vector<Statistic> list) {
      Net<RunTimeAny>(communicator, net::units(1), {.strategy = FullyShard<>{}}, {.statistics = std::move(list)});
    };
    EXPECT_THROW(with({{.name = "unit0.w", .shape = {3}}}), InputError);
    EXPECT_THROW(with({{.name = "mean", .shape = {3}}, {.name = "mean", .shape = {3}}}), InputError);
    EXPECT_THROW(with({{.name = "", .shape = {3}}}), InputError);
    Net<RunTimeAny> sharded(communicator, net::units(1), {.strategy = FullyShard<>{}}, {.statistics = four});
    EXPECT_THROW(sharded.statistic("variance"), InputError);
  });
}

}  // namespace
}  // namespace fsdp::test
