// SPDX-License-Identifier: Apache-2.0
// A model of its own: float inputs, mean squared error, blocks of two kinds and different widths.
#include <fsdp/models/model.hpp>

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <comm/collectives.hpp>
#include <comm/threads.hpp>
#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/optim/adamw.hpp>
#include <fsdp/optim/initialize.hpp>
#include <fsdp/plan/dry_run.hpp>

#include <support/series_model.hpp>

namespace fsdp::test {
namespace {

using Comm = comm::Threads<>;
template <class Sharding, bool entry_takes_weights = false>
using Series = SeriesModel<Stack<Sharding, Comm, Fp32, tiling::RunTime>, entry_takes_weights>;

static_assert(check_model<Series<FullyShard<>>>() && Model<Series<Zero3, true>>);
static_assert(check_model<Llama<Stack<FullyShard<>, Comm, Bf16Mixed, tiling::RunTime>>>());
static_assert(check_model<AlternatingLlama<Stack<Replicated, Comm, Fp32, tiling::Untiled>>>());
static_assert(!Model<int> && !Model<SeriesConfig> && !ModelConfig<int> && ModelConfig<SeriesConfig>);

constexpr std::int64_t length = 6, sequences = 2, micro_batches = 2;

/// Numbers in [-1, 1) that depend on nothing but their index.
float number(std::int64_t i) {
  return static_cast<float>(static_cast<double>(mixed(static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1.0);
}

/// One rank's batches: targets are sums of some inputs, so that they can be learnt.
struct Data {
  Data(int rank, const SeriesConfig& config) {
    const std::int64_t rows = length * sequences;
    for (int m = 0; m < micro_batches; ++m) {
      auto& x = inputs.emplace_back();
      auto& y = targets.emplace_back();
      for (std::int64_t i = 0; i < rows * config.features; ++i) x.push_back(number(1000 * rank + 500 * m + i));
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t o = 0; o < config.outputs; ++o) {
          const auto at = static_cast<std::size_t>(row * config.features + o);
          y.push_back(x[at] - 0.5f * x[at + 1]);
        }
    }
    for (std::size_t m = 0; m < inputs.size(); ++m)
      batches.push_back({.inputs = {inputs[m].data(), {rows, config.features}},
                         .targets = {targets[m].data(), {rows, config.outputs}},
                         .sequences = sequences});
  }
  std::vector<std::vector<float>> inputs, targets;
  std::vector<SeriesBatch> batches;
};

/// A rank's planned module and all that trains it.
template <class Model>
struct Training {
  Comm& communicator;
  Model model{SeriesConfig{}};
  plan::Request request;
  plan::Plan plan;
  ShardedModule<Model> module;
  Executor<Model> executor;
  optim::AdamW<Model> optimizer;
  Data data;

  Training(Comm& world, const tiling::RunTime& tiling)
      : communicator(world),
        request{.ranks = world.size(),
                .rank = world.rank(),
                .sequences = sequences,
                .shape = {.sequence_length = length, .micro_batches = micro_batches}},
        plan(plan::dry_run(model, {}, tiling, request)),
        module(world, model, {}, tiling, planned()),
        executor(module),
        optimizer(module, {.weight_decay = 0, .clip = 0}),
        data(world.rank(), model.config()) {
    optim::initialize(module, 3);
  }
  RunShape planned() const {
    RunShape shape = request.shape;
    shape.activation_bytes = plan.activation_bytes;
    return shape;
  }
  /// Mean over all rows of all ranks.
  double step() {
    const double rows = static_cast<double>(length * sequences * micro_batches * communicator.size());
    executor.queue_training(data.batches, static_cast<float>(1 / rows));
    optimizer.step(executor.loss(), {.lr = 1e-2});
    return optimizer.control().decision().loss / rows;
  }
  double evaluate() {
    double sum = 0;
    for (const SeriesBatch& batch : data.batches) sum += executor.evaluate(batch);
    return comm::sum_over_ranks(communicator, sum, {"test"});
  }
};

template <class Model>
std::vector<double> losses(int ranks, const tiling::RunTime& tiling = {}) {
  std::vector<double> found;
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) {
    Training<Model> run(communicator, tiling);
    std::vector<double> mine;
    for (int i = 0; i < 60; ++i) mine.push_back(run.step());
    run.evaluate();
    EXPECT_EQ(run.module.arena().peak(), run.plan.activation_bytes);
    for (const auto& piece : run.module.pieces()) {
      if (piece.parameter->name != "blocks.1.unused") continue;
      for (std::int64_t i = 0; i < piece.main.numel(); ++i) EXPECT_EQ(piece.main[i], 0.0f) << "begins and stays zero";
    }
    if (communicator.rank() == 0) found = mine;
  });
  return found;
}

TEST(SeriesModel, LearnsUnderEveryStrategyAndTilingAlike) {
  const std::vector<double> expected = losses<Series<FullyShard<>>>(2);
  EXPECT_LT(expected.back(), 0.1 * expected.front());
  EXPECT_EQ(losses<Series<Zero3>>(2), expected);
  // These sum in another order: micro-batches before ranks, and tiles.
  for (const auto& other : {losses<Series<Replicated>>(2), losses<Series<FullyShard<>>>(2, tiling::RunTime::tokens(5)),
                            losses<Series<FullyShard<>>>(2, tiling::RunTime::budget(4000))})
    for (std::size_t step = 0; step < expected.size(); ++step)
      EXPECT_NEAR(other[step], expected[step], 1e-5 * expected.front()) << step;
}

TEST(SeriesModel, GradientsAreDifferencesOfTheLoss) {
  Comm::run(2, {.checks = true}, [](Comm& communicator) {
    Training<Series<FullyShard<>>> run(communicator, {});
    run.executor.train(run.data.batches, 1.0f);
    for (int owner = 0; owner < communicator.size(); ++owner)
      for (std::size_t p = 0; p < 20; ++p) {  // pieces of a rank; fewer make both evaluate the same
        const bool mine = communicator.rank() == owner && p < run.module.pieces().size();
        const Tensor<float> values = mine ? run.module.pieces()[p].main : Tensor<float>();
        const bool moves = mine && values.numel() > 0;
        const float before = moves ? values[0] : 0, h = 1e-2f;
        if (moves) values[0] = before + h;
        const double above = run.evaluate();
        if (moves) values[0] = before - h;
        const double below = run.evaluate();
        if (!moves) continue;
        values[0] = before;
        const double expected = (above - below) / (2 * static_cast<double>(h));
        EXPECT_NEAR(run.module.pieces()[p].gradient[0], expected, 2e-2 * std::abs(expected) + 2e-3)
            << run.module.pieces()[p].parameter->name;
      }
  });
}

/// Gathers of the entry's weights in a step.
template <class Model>
std::int64_t gathers_of_entry(bool& needs_weights) {
  std::int64_t count = 0;
  Comm::run(2, {}, [&](Comm& communicator) {
    Training<Model> run(communicator, {});
    if (communicator.rank() != 0) return;
    needs_weights = run.module.uses().front().backward_needs_weights;
    for (const sharding::Event& event : run.module.schedule(sharding::Pass::train))
      count += event.action == sharding::Action::gather && event.index == run.module.uses().front().groups.front();
  });
  return count;
}

TEST(SeriesModel, AnEntryIsGatheredForBackwardWhereItsBackwardTakesWeights) {
  bool needs = true;
  EXPECT_EQ(gathers_of_entry<Series<FullyShard<>>>(needs), micro_batches);
  EXPECT_FALSE(needs);
  EXPECT_EQ((gathers_of_entry<Series<FullyShard<>, true>>(needs)), 2 * micro_batches);
  EXPECT_TRUE(needs);
  EXPECT_EQ((losses<Series<FullyShard<>, true>>(2)), (losses<Series<FullyShard<>>>(2)));
}

TEST(SeriesModel, RefusesABatchThatItCannotUse) {
  Comm::run(1, {}, [](Comm& communicator) {
    Training<Series<FullyShard<>>> run(communicator, {});
    run.data.inputs[0][4] = INFINITY;
    EXPECT_THROW(run.executor.train(run.data.batches, 1.0f), InputError);
  });
}

TEST(SeriesModel, ItsWeightsBeginAsTheirParametersSay) {
  Comm::run(1, {}, [](Comm& communicator) {
    Training<Series<FullyShard<>>> run(communicator, {});
    std::int64_t normal = 0, zeros = 0;
    for (const auto& piece : run.module.pieces()) {
      const std::string& name = piece.parameter->name;
      const std::uint64_t key = mixed(3) ^ hashed(hash_seed, name);
      for (std::int64_t i = 0; i < piece.main.numel(); ++i) {
        if (name == "input.weight") {
          ++normal;
          EXPECT_EQ(piece.main[i], static_cast<float>(0.3 * optim::normal_at(key, piece.begin + i)));
        } else if (name == "blocks.1.unused") {
          ++zeros;
          EXPECT_EQ(piece.main[i], 0.0f);
        }
      }
    }
    EXPECT_EQ(normal, 5 * 8);
    EXPECT_EQ(zeros, 8);
  });
}

TEST(ModelListing, IsTheUnitsAndTheConfigsValues) {
  const checkpoint::ModelListing listing = checkpoint::listing_of(Series<FullyShard<>>(SeriesConfig{.layers = 2}));
  std::vector<std::string> names;
  for (const auto& parameter : listing.parameters) names.push_back(parameter.name);
  EXPECT_EQ(names, (std::vector<std::string>{"input.weight", "blocks.0.post_attention_layernorm.weight",
                                             "blocks.0.mlp.gate_proj.weight", "blocks.0.mlp.up_proj.weight",
                                             "blocks.0.mlp.down_proj.weight", "blocks.1.unused", "output.weight"}));
  EXPECT_EQ(listing.values.size(), 5u);
  EXPECT_EQ(listing.values.back(), (ConfigValue{"layers", std::int64_t{2}}));
}

}  // namespace
}  // namespace fsdp::test
