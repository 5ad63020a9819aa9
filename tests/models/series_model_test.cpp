// SPDX-License-Identifier: Apache-2.0
// A user-defined model: float inputs, mean squared error, blocks of two kinds and different widths.
#include <tessera/fsdp/models/model.hpp>

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/testing/model_runs.hpp>
#include <tessera/fsdp/verification/step_watch.hpp>

#include <support/errors.hpp>
#include <support/series_model.hpp>

namespace fsdp::test {
namespace {

using Comm = comm::Threads<>;
template <class Sharding, bool entry_takes_weights = false>
using Series = SeriesModel<testing::ModelStack<Sharding>, entry_takes_weights>;

static_assert(check_model<Series<FullyShard<>>>() && Model<Series<Zero3, true>>);
static_assert(check_model<Llama<Stack<FullyShard<>, Comm, Bf16Mixed, tiling::RunTimeTiling>>>());
static_assert(check_model<AlternatingLlama<Stack<Replicated, Comm, Fp32, tiling::Untiled>>>());
static_assert(!Model<int> && !Model<SeriesConfig> && !ModelConfig<int> && ModelConfig<SeriesConfig>);

constexpr std::int64_t length = 6, sequences = 2, micro_batches = 2;

/// Pseudo-random numbers in [-1, 1) that depend only on their index.
float number(std::int64_t i) {
  return static_cast<float>(static_cast<double>(mixed(static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1.0);
}

/// One rank's batches. Targets are sums of some inputs, so that they can be learned.
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
    for (const auto& [x, y] : ranges::views::zip(inputs, targets))
      batches.push_back({.inputs = {x.data(), {rows, config.features}},
                         .targets = {y.data(), {rows, config.outputs}},
                         .sequences = sequences});
  }
  std::vector<std::vector<float>> inputs, targets;
  std::vector<SeriesBatch> batches;
};

template <class Model>
testing::ModelTask<Model, Data> task(const tiling::RunTimeTiling& tiling = {}) {
  return {.size = {.sequences = sequences, .sequence_length = length, .micro_batches = micro_batches, .threads = 1},
          .tiling = tiling};
}

template <class Task>
std::vector<double> losses(const Task& task, int steps = 8) {
  return testing::train_model(2, task, {.steps = steps}).losses;
}

TEST(SeriesModel, LearnsTheSameWithEveryStrategyAndTiling) {
  const std::vector<double> expected = losses(task<Series<FullyShard<>>>(), 40);
  EXPECT_LT(expected.back(), 0.1 * expected.front());
  const std::vector<double> first(expected.begin(), expected.begin() + 8);
  EXPECT_EQ(losses(task<Series<Zero3>>()), first);
  EXPECT_EQ(losses(task<Series<FullyShard<>, true>>()), first) << "an entry that takes weights for backward";
  // These sum in a different order: over micro-batches before ranks, or by tiles.
  const auto near = [&](const char* what, const auto& one) {
    testing::expect_losses_near("the losses of fsdp2, within 1e-5", what, losses(one), first);
  };
  near("replicated", task<Series<Replicated>>());
  near("tiles", task<Series<FullyShard<>>>(tiling::RunTimeTiling::tokens(5)));
  near("budget", task<Series<FullyShard<>>>(tiling::RunTimeTiling::budget(4000)));
}

TEST(SeriesModel, GradientsMatchFiniteDifferencesOfTheLoss) {
  testing::check_model_gradients("2 ranks, fsdp2", 2, task<Series<FullyShard<>>>());
}

/// Calls body(communicator, training) on each of `ranks` ranks, with the initial weights.
template <class Model, class Body>
void with_training(int ranks, const Body& body) {
  Comm::run(ranks, {.checks = true}, [&](Comm& communicator) {
    train::Training<Model> training(communicator, Model(SeriesConfig{}), task<Model>().size);
    training.initialize(3);
    body(communicator, training);
  });
}

/// Returns the number of all-gathers of the entry's weights in a step.
template <class Model>
std::int64_t gathers_of_entry(bool& needs_weights) {
  std::int64_t count = 0;
  with_training<Model>(2, [&](Comm& communicator, train::Training<Model>& training) {
    if (communicator.rank() != 0) return;
    const auto& entry = training.module().uses().front();
    needs_weights = entry.backward_needs_weights;
    for (const sharding::Task& event : training.module().schedule(sharding::Pass::train))
      count += event.action == sharding::Action::gather && event.index == entry.groups.front();
  });
  return count;
}

TEST(SeriesModel, EntryUnshardsInBackwardOnlyIfItNeedsItsWeights) {
  bool needs = true;
  EXPECT_EQ(gathers_of_entry<Series<FullyShard<>>>(needs), micro_batches);
  EXPECT_FALSE(needs);
  EXPECT_EQ((gathers_of_entry<Series<FullyShard<>, true>>(needs)), 2 * micro_batches);
  EXPECT_TRUE(needs);
}

TEST(SeriesModel, AnUnusedWeightIsNotUpdated) {
  with_training<Series<FullyShard<>>>(2, [&](Comm& communicator, auto& training) {
    const Data data(communicator.rank(), SeriesConfig{});
    for (int step = 0; step < 5; ++step) training.step(data.batches, {.lr = 1e-2});
    for (const auto& piece : training.module().shards()) {
      if (piece.parameter->name != "blocks.1.unused") continue;
      for (std::int64_t i = 0; i < piece.main.numel(); ++i) EXPECT_EQ(piece.main[i], 0.0f);
    }
  });
}

TEST(SeriesModel, DigestsNeedADryRunThatHasThem) {
  using Model = Series<FullyShard<>>;
  with_training<Model>(1, [](Comm& communicator, auto& training) {
    train::StepSize size = task<Model>().size;
    EXPECT_THROW(StepWatch(training.module(), training.executor()), LogicError) << "neither digests nor verifies";
    size.digests = true;
    test::expect_parts(
        test::error_of<LogicError>([&] { train::Training<Model>(communicator, Model(SeriesConfig{}), size); }),
        {"include <tessera/fsdp/verification/verification.hpp>", "WatchedSteps"});
  });
}

TEST(SeriesModel, RefusesInvalidBatches) {
  with_training<Series<FullyShard<>>>(1, [](Comm&, auto& training) {
    Data data(0, SeriesConfig{});
    data.inputs[0][4] = INFINITY;
    EXPECT_THROW(training.executor().train(data.batches, 1.0f), InputError);
  });
}

TEST(SeriesModel, InitialisesWeightsAsTheParametersSpecify) {
  with_training<Series<FullyShard<>>>(1, [](Comm&, auto& training) {
    std::int64_t normal = 0, zeros = 0;
    for (const auto& piece : training.module().shards()) {
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

TEST(ModelListing, ContainsTheParametersAndTheConfigValues) {
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
