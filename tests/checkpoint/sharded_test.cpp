// SPDX-License-Identifier: Apache-2.0
// Checkpoints of user-defined tensors: by name, on any number of ranks, under any strategy.
#include <tessera/fsdp/checkpoint/sharded.hpp>

#include <gtest/gtest.h>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <support/nets.hpp>
#include <tessera/fsdp/sharding/per_unit.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::test {
namespace {

using Network = Net<RunTimeAny>;
using Losses = std::vector<double>;

const RunTimeAny fsdp2{.strategy = FullyShard<>{}}, zero3{.strategy = Zero3{}},
    blocks_of_zero3{.strategy = Zero3{}, .other_layout = buffer::Blocks{.elements = 5}},
    replicated{.strategy = Replicated{}};

using Parts = PerUnit<HybridShard<Zero1, OptimizerAcross::sharded>, HybridShard<Zero1>, FullyShard<>>;
const Parts parts{on("unit0", HybridShard<Zero1, OptimizerAcross::sharded>{.group = 2}),
                  on("unit1.w", HybridShard<Zero1>{.group = 2}), otherwise(FullyShard<>{})};

constexpr int micro_batches_of_all_ranks = 12;
constexpr float running_mean[] = {0, 0.25f, 0.5f};

/// Trains with the same micro-batches per step on 1 to 4 ranks.
template <class SharedT>
Losses train(SharedT& sharded, Comm& communicator, int first, int steps) {
  Losses losses;
  const int ranks = communicator.size();
  for (int step = first; step < first + steps; ++step) {
    double loss = 0;
    const int micro_batches = micro_batches_of_all_ranks / ranks;
    auto pass = sharded.train(micro_batches);
    for (int m = 0; m < micro_batches; ++m) {
      const net::Place place{.rank = 0, .micro_batch = m * ranks + communicator.rank(), .step = step};
      net::Walk walk{net::inputs(place)};
      for (const int unit : {0, 1, 2}) walk.forward(pass.forward(unit));
      loss += net::error(walk.x, net::targets(place));
      for (const int unit : {2, 1, 0}) walk.backward(pass.backward(unit));
    }
    pass.finish();
    losses.push_back(sharded.step(loss, {.lr = 1e-2}).loss);
  }
  return losses;
}

Network::Settings settings(Comm& communicator, std::vector<std::string> frozen = {}) {
  return {.micro_batches = micro_batches_of_all_ranks / communicator.size(),
          .unit_options = {.frozen = std::move(frozen)},
          .statistics = {{.name = "running_mean", .shape = {3}},
                         {.name = "rank", .shape = {1}, .merge = Statistic::Merge::own}}};
}

const checkpoint::HostValues host_values = {{"record", "1234"}, {"random", "a \"state\"\n"}};

/// Trains three steps and saves; returns the losses of the next two steps.
template <class Strategy = RunTimeAny>
Losses saved_to(const std::filesystem::path& folder, int ranks = 2, const Strategy& strategy = fsdp2) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    Net<Strategy> sharded(communicator, net::units(3), strategy, settings(communicator));
    sharded.initialize(1);
    train(sharded, communicator, 0, 3);
    std::ranges::copy(running_mean, sharded.statistic("running_mean").data());
    sharded.statistic("rank")[0] = static_cast<float>(7 + communicator.rank());
    EXPECT_EQ(checkpoint::save(sharded, folder, host_values).filename(), "step-00000003");
    return train(sharded, communicator, 3, 2);
  });
}

template <class Strategy>
Losses resumed(const std::filesystem::path& folder, int ranks, const Strategy& strategy) {
  return of_first_rank(ranks, [&](Comm& communicator) {
    Net<Strategy> sharded(communicator, net::units(3), strategy, settings(communicator));
    EXPECT_EQ(checkpoint::restore(sharded, folder), host_values);
    EXPECT_EQ(sharded.optimizer().steps(), 3);
    EXPECT_TRUE(std::ranges::equal(running_mean, std::span(sharded.statistic("running_mean").data(), 3)));
    EXPECT_EQ(sharded.statistic("rank")[0], 7.0f);  // the value of rank 0
    const Losses losses = train(sharded, communicator, 3, 2);
    EXPECT_EQ(sharded.held(), sharded.planned());
    return losses;
  });
}

TEST(ShardedCheckpoint, ResumesUnderAnyStrategyOnAnyNumberOfRanks) {
  const TemporaryFolder folder;
  const Losses expected = saved_to(folder.path());
  EXPECT_EQ(resumed(folder.path(), 2, fsdp2), expected);
  EXPECT_EQ(resumed(folder.path() / "step-00000003", 2, zero3), expected);
  EXPECT_EQ(resumed(folder.path(), 2, blocks_of_zero3), expected);
  const auto near = [&](int ranks, const RunTimeAny& strategy) {
    SCOPED_TRACE(message(ranks, " ranks, ", policy_text(strategy)));
    const Losses found = resumed(folder.path(), ranks, strategy);
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [own, other] : ranges::views::zip(found, expected)) EXPECT_NEAR(own, other, 1e-7 * other);
  };
  for (const int ranks : {1, 3})
    for (const RunTimeAny& strategy : {fsdp2, zero3, blocks_of_zero3}) near(ranks, strategy);
  near(3, replicated);
}

TEST(ShardedCheckpoint, ResumesUnderAnyAssignmentOfStrategies) {
  const TemporaryFolder folder, other;
  const Losses expected = saved_to(folder.path());
  RunTimeAny some = blocks_of_zero3;
  some.units = {part_of(on("unit1", replicated)), part_of(on("unit2.w", RunTimeAny{Zero1{}}))};
  const auto near = [&](const Losses& found) {
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [own, loss] : ranges::views::zip(found, expected)) EXPECT_NEAR(own, loss, 1e-6 * loss);
  };
  near(resumed(folder.path(), 4, parts));
  near(resumed(folder.path(), 3, some));
  const Losses saved = saved_to(other.path(), 4, parts);
  near(saved);
  EXPECT_EQ(resumed(other.path(), 4, parts), saved);
  near(resumed(other.path(), 2, some));
  near(resumed(other.path(), 1, fsdp2));
}

TEST(ShardedCheckpoint, AnOverflowInOnePartSkipsTheStepOfAll) {
  on_ranks(4, [](Comm& communicator) {
    Initialized<Parts> sharded(communicator, net::units(3), parts, {.rules = {.clip = 1, .skips_overflow = true}});
    for (const char* const name : {"unit0.w", "unit1.w", "unit2.b"}) {
      const double loss = net::train(sharded, {.uses = {0, 1, 2}});
      const Whole before = net::weights(sharded);
      for (const auto& shard : sharded.shards())
        if (shard.parameter->name == name && shard.owned && shard.begin == 0 && shard.count() > 0)
          const_cast<float*>(shard.gradient.data())[0] = INFINITY;
      EXPECT_EQ(sharded.step(loss, {.lr = 1e-2}).skipped, 1);
      EXPECT_EQ(net::weights(sharded), before);
      EXPECT_EQ(sharded.step(net::train(sharded, {.uses = {0, 1, 2}}), {.lr = 1e-2}).skipped, 0);
      EXPECT_NE(net::weights(sharded), before);
    }
  });
}

TEST(ShardedCheckpoint, RefusesACheckpointOfAnotherNetwork) {
  const TemporaryFolder folder;
  saved_to(folder.path());
  const auto refused = [&](std::vector<Unit> units, const char* words) {
    on_ranks(2, [&](Comm& communicator) {
      Network sharded(communicator, units, fsdp2, settings(communicator));
      EXPECT_INPUT_ERROR(checkpoint::restore(sharded, folder.path()), words);
    });
  };
  refused(net::units(4), "it has no tensor \"unit3.b\"");
  refused(net::units(2), "unit2");
  std::vector<Unit> wider = net::units(3);
  wider[1].parameters[1].shape = {6};
  refused(wider, "unit1.b");
}

TEST(ShardedCheckpoint, CountsTheStepsOfEachOrder) {
  const TemporaryFolder folder;
  std::vector<Order> orders = {mirrored(std::vector{0, 1, 2}), mirrored(std::vector{2})};
  orders[0].without_gradients = {2};
  const auto step = [](Network& sharded, int number) {
    const int order = number % 3 == 0 ? 0 : 1;
    const net::Loop run{.uses = order == 0 ? std::vector{0, 1, 2} : std::vector{2}, .order = order, .step = number};
    sharded.step(net::train(sharded, run), {.lr = 1e-2});
  };
  const Whole expected = of_first_rank(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), fsdp2, {.orders = orders});
    sharded.initialize(1);
    for (const int number : {0, 1, 2, 3, 4}) step(sharded, number);
    checkpoint::save(sharded, folder.path());
    for (const int number : {5, 6, 7}) step(sharded, number);
    return net::weights(sharded);
  });
  on_ranks(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(3), zero3, {.orders = orders});
    EXPECT_TRUE(checkpoint::restore(sharded, folder.path()).empty());
    EXPECT_EQ(sharded.optimizer().control().taken(), (std::vector<std::int64_t>{2, 3}));
    for (const int number : {5, 6, 7}) step(sharded, number);
    EXPECT_EQ(net::weights(sharded), expected);
  });
}

/// The set of trained tensors changes between two runs, with the same result as if it changed within one run.
TEST(ShardedCheckpoint, CanResumeWithDifferentFrozenTensors) {
  const TemporaryFolder folder;
  const auto with = [](Comm& communicator, const RunTimeAny& strategy, std::vector<std::string> frozen) {
    return std::make_unique<Network>(communicator, net::units(3), strategy, settings(communicator, std::move(frozen)));
  };
  const Whole saved = of_first_rank(2, [&](Comm& communicator) {
    const auto sharded = with(communicator, fsdp2, {"unit0.*"});
    sharded->initialize(1);
    train(*sharded, communicator, 0, 3);
    const std::filesystem::path step = checkpoint::save(*sharded, folder.path());
    const checkpoint::SafetensorsFile states(step / "optimizer.safetensors");
    for (const checkpoint::TensorInfo& state : states.tensors())
      EXPECT_FALSE(state.name.starts_with("unit0.")) << state.name;
    return net::weights(*sharded);
  });
  const Whole gone_on = of_first_rank(2, [&](Comm& communicator) {
    const auto sharded = with(communicator, zero3, {"unit1.*"});
    checkpoint::restore(*sharded, folder.path());
    for (std::size_t i = 0; i < sharded->shards().size(); ++i) {
      if (!sharded->shards()[i].parameter->name.starts_with("unit0.")) continue;
      for (const optim::State& state : sharded->optimizer().states(i)) {
        const Tensor<float> moment = state.as<float>();
        EXPECT_EQ(std::count(moment.data(), moment.data() + moment.numel(), 0.0f), moment.numel());
      }
    }
    train(*sharded, communicator, 3, 1);
    Whole all = net::weights(*sharded);
    for (const auto& [name, values] : all) EXPECT_EQ(values == saved.at(name), name.starts_with("unit1.")) << name;
    return all;
  });
  on_ranks(3, [&](Comm& communicator) {
    const auto sharded = with(communicator, fsdp2, {"unit1.*"});
    checkpoint::restore(*sharded, folder.path());
    train(*sharded, communicator, 3, 1);
    for (const auto& [name, values] : net::weights(*sharded)) {
      ASSERT_EQ(values.size(), gone_on.at(name).size());
      for (const auto& [own, other] : ranges::views::zip(values, gone_on.at(name)))
        EXPECT_NEAR(own, other, 1e-5) << name;
    }
  });
}

/// The values 0, 1/4, 2/4, ...
net::Values quarters(std::int64_t count, float first = 0) {
  net::Values values(static_cast<std::size_t>(count));
  std::ranges::generate(values, [next = first - 0.25f]() mutable { return next += 0.25f; });
  return values;
}

/// Writes a file of tensors of the given shapes with these values.
std::filesystem::path written(const TemporaryFolder& folder, const std::vector<checkpoint::NamedShape>& tensors,
                              float first = 0) {
  const std::filesystem::path path = folder.path() / "weights.safetensors";
  std::filesystem::remove(path);
  checkpoint::SharedFile file = checkpoint::SharedFile::create(path, checkpoint::plan_file(tensors));
  for (const auto& [i, tensor] : ranges::views::enumerate(tensors))
    file.write_range(i, 0, quarters(checkpoint::elements_of(tensor.shape), first));
  file.finish();
  return path;
}

/// Loads into a network of one unit and returns its weights.
Whole load(const std::filesystem::path& from, const checkpoint::Rename& rename) {
  return of_first_rank(2, [&](Comm& communicator) {
    Network sharded(communicator, net::units(1), fsdp2);
    checkpoint::load(sharded, from, rename);
    Whole all = net::weights(sharded);
    net::steps(sharded, {.uses = {0}}, 1);  // from here on its weights have values
    return all;
  });
}

TEST(ForeignWeights, LoadsTensorsByNameOrMappedName) {
  const TemporaryFolder folder;
  const Whole expected = {{"unit0.w", quarters(25)}, {"unit0.b", quarters(5)}};
  EXPECT_EQ(load(written(folder, {{"unit0.b", {5}}, {"unit0.w", {5, 5}}}), {}), expected);
  const auto rename = [](const std::string& name) -> std::string {
    if (name == "optimizer") return "";
    return "unit0." + name.substr(name.size() - 1);
  };
  EXPECT_EQ(load(written(folder, {{"net/b", {5}}, {"net/w", {5, 5}}, {"optimizer", {2}}}), rename), expected);
}

TEST(ForeignWeights, RefusesTensorsThatDoNotFitByName) {
  const TemporaryFolder folder;
  EXPECT_INPUT_ERROR(load(written(folder, {{"unit0.w", {5, 5}}}), {}), "lacks 1 tensor of the model: unit0.b");
  EXPECT_INPUT_ERROR(load(written(folder, {{"unit0.b", {5}}, {"unit0.w", {5, 5}}, {"more", {1}}}), {}),
                     "has 1 tensor that the model lacks: more");
  EXPECT_INPUT_ERROR(load(written(folder, {{"unit0.b", {5}}, {"unit0.w", {25}}}), {}), "\"unit0.w\" has shape");
  const auto same = [](const std::string&) -> std::string { return "unit0.b"; };
  EXPECT_INPUT_ERROR(load(written(folder, {{"a", {5}}, {"b", {5}}}), same), "two tensors are \"unit0.b\"");
  EXPECT_INPUT_ERROR(load(written(folder, {{"unit0.b", {5}}, {"unit0.w", {5, 5}}}, NAN), {}), "unit0.");
  EXPECT_THROW(load(folder.path() / "nowhere.safetensors", {}), Error);
}

}  // namespace
}  // namespace fsdp::test
