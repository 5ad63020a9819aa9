// SPDX-License-Identifier: Apache-2.0
// The forecaster, a user-defined model: under every kind of strategy, with and without tiling.
#include <examples/06_own_model/model.hpp>
#include <examples/06_own_model/source.hpp>

#include <cmath>
#include <vector>

#include <tessera/fsdp/testing/model.hpp>
#include <tessera/trainer/data/batches.hpp>

namespace fsdp::test {
namespace {

template <class Sharding>
using ForecasterOn = forecaster::Forecaster<testing::ModelStack<Sharding>>;

constexpr std::int64_t length = 12, sequences = 2, micro_batches = 2;
constexpr forecaster::Config config{.series = 3, .hidden = 16, .intermediate = 24, .layers = 2, .heads = 2};

/// Windows of seasonal series, different on each rank; one window of rank 1's last micro-batch is missing.
struct Data {
  Data(int rank, const forecaster::Config& sizes) {
    const forecaster::Seasons source{.series = sizes.series, .length = length};
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      auto& memory = storages.emplace_back(source.storage(sequences, [](std::int64_t bytes) {
        return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(bytes)],
                                          std::default_delete<std::byte[]>());
      }));
      const std::vector<std::int64_t> windows = {4 * rank + 2 * m, 4 * rank + 2 * m + 1};
      batches.push_back(source.fill(memory, std::span(windows).first(rank == 1 && m == 1 ? 1 : 2)));
    }
  }
  std::vector<forecaster::Seasons::Storage> storages;
  std::vector<forecaster::Batch> batches;
};

struct Forecaster {
  template <class Stack>
  using Model = forecaster::Forecaster<Stack>;
  using Data = test::Data;
  static constexpr double learns_to = 0.2;
  static forecaster::Config config() { return test::config; }
  static train::StepSize size() {
    return {.sequences = sequences, .sequence_length = length, .micro_batches = micro_batches, .threads = 1};
  }
};

TEST(Forecaster, MissingTargetsDoNotCount) {
  EXPECT_EQ(Data(0, config).batches[1].counts().valid_targets, sequences * length * config.series);
  const forecaster::Batch batch = Data(1, config).batches[1];
  EXPECT_EQ(batch.counts().valid_targets, length * config.series);
  double sum = 0;
  std::vector<float> y(static_cast<std::size_t>(batch.targets.numel()), 2.0f);
  for (std::int64_t i = 0; i < length * config.series; ++i)
    sum += std::pow(2 - static_cast<double>(batch.targets.data()[i]), 2);
  double loss = 1;
  device::Ledger ledger;
  device::Cpu::Arena arena(ledger, 1024);
  device::Cpu::Stream stream(arena, 1);
  device::enqueue(
      stream, forecaster::SquaredError<float>{
                  .y = {y.data(), batch.targets.shape()}, .targets = batch.targets, .scale = 3, .loss = {&loss, {1}}});
  EXPECT_NEAR(loss, 1 + sum, 1e-5 * sum);
  EXPECT_NEAR(y[0], 6 * (2 - batch.targets.data()[0]), 1e-5);
  EXPECT_EQ(y.back(), 0.0f);
}

TEST(Forecaster, RefusesAnInvalidBatch) {
  const ForecasterOn<RunTimeSharded> model(config);
  std::vector<float> inputs(12 * 3), targets(12 * 3);
  const forecaster::Batch batch{{inputs.data(), {12, 3}}, {targets.data(), {12, 3}}, 1};
  model.validate(batch, 12);
  EXPECT_THROW(model.validate(batch, 6), InputError);
  inputs[4] = INFINITY;
  EXPECT_THROW(model.validate(batch, 12), InputError);
}

}  // namespace
}  // namespace fsdp::test

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Forecaster, ModelSuite, test::Forecaster);

}  // namespace fsdp::testing
