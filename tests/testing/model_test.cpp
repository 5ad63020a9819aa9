// SPDX-License-Identifier: Apache-2.0
// The model suite: Llama matches its golden folder, memory is planned for all batch contents, and a wrong model and
// wrong data are reported in words.
#include <tessera/fsdp/testing/model.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include <examples/06_own_model/model.hpp>
#include <examples/06_own_model/source.hpp>
#include <tessera/fsdp/models/llama.hpp>

#include "failures.hpp"

namespace fsdp::testing {
namespace {

/// The reason for which an entry allocates more memory in a pass than Llama's entry.
enum class Takes : std::uint8_t { nothing, for_noise, for_documents, for_each_document, for_sequences };
inline Takes takes = Takes::nothing;                    // a run-time value, so that only one model is compiled
inline std::atomic<std::int64_t> shared_sequences = 0;  // of the last pass

template <class L>
struct GreedyEntry : nn::RotaryEmbedding<L> {
  using Base = nn::RotaryEmbedding<L>;
  nn::RotaryTable share(nn::Context<L>& context) const {
    if (!L::Device::counts_only) shared_sequences = context.sequences;
    if (takes == Takes::for_sequences) context.template save<float>({1000 * context.sequences});
    return Base::share(context);
  }
  void forward(nn::Context<L>& context, const typename Base::Types::Weights& weights, Tensor<const std::int32_t> tokens,
               Tensor<typename Base::Compute> y) const {
    if (takes == Takes::for_noise && context.noise.key != 0) context.template save<float>({1000});
    if (takes == Takes::for_documents && !context.documents.empty()) context.template save<float>({1000});
    if (takes == Takes::for_each_document) context.template save<float>({1000 * std::ssize(context.documents)});
    Base::forward(context, weights, tokens, y);
  }
};
template <class StackT>
struct GreedyLlama : Llama<StackT> {
  using Base = Llama<StackT>;
  using Base::Base;
  using Entry = GreedyEntry<typename StackT::Local>;
  template <class Other>
  using On = GreedyLlama<Other>;
  Entry entry() const { return {Base::entry()}; }
};

/// The windows of a golden folder (tests/golden/README.md) in one micro-batch on one rank.
struct GoldenLlama {
  template <class Stack>
  using Model = GreedyLlama<Stack>;
  static inline std::ptrdiff_t shift = 0;  // of the targets

  static std::filesystem::path golden() { return std::filesystem::path(TESSERA_TEST_DATA) / "golden/llama-gqa"; }
  static LlamaConfig config() { return LlamaConfig::read(golden()); }
  static std::string text() {
    std::ifstream file(golden() / "text.bin", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static std::int64_t length() {
    return checkpoint::SafetensorsFile(golden() / "expected.safetensors").at("logits").shape.at(1);
  }
  static std::int64_t windows() { return (std::ssize(text()) - 1) / length(); }
  static train::StepSize size() { return {.sequences = windows(), .sequence_length = length(), .threads = 1}; }

  struct Data {
    Data(int, const LlamaConfig&) {
      const std::string bytes = text();
      const std::int64_t tokens = windows() * length();
      for (const char byte : bytes.substr(0, static_cast<std::size_t>(tokens + 1)))
        list.push_back(static_cast<unsigned char>(byte));
      batches.push_back({{list.data(), {tokens}}, {list.data() + 1 - shift, {tokens}}, windows()});
    }
    std::vector<std::int32_t> list;
    std::vector<TokenBatch> batches;
  };
};

TEST(GoldenFolders, MatchTheReferenceModel) { check_model_golden<GoldenLlama>(); }

TEST(GoldenFolders, ReportDifferentTargets) {
  const auto found = failures_with(GoldenLlama::shift, std::ptrdiff_t{1}, check_model_golden<GoldenLlama>);
  expect_sentence(found, "a golden folder's weights give its loss", "golden/llama-gqa, 1 rank", "the loss is");
  expect_sentence(found, "a golden folder's weights give its loss", "golden/llama-gqa, 1 rank",
                  "the gradient of model.embed_tokens.weight is off by");
}

/// Adapters with dropout that need more memory than the head.
struct Dropping {
  template <class Stack>
  using Model = GreedyLlama<Stack>;
  static LlamaConfig config() {
    return {.vocab_size = 23,
            .hidden_size = 24,
            .intermediate_size = 40,
            .layers = 2,
            .heads = 2,
            .kv_heads = 1,
            .head_dim = 12,
            .lora = {.rank = 3, .dropout = 0.25}};
  }
  static train::StepSize size() { return {.sequences = 3, .sequence_length = 11, .micro_batches = 2, .threads = 1}; }
  struct Data {
    Data(int rank, const LlamaConfig& sizes) {
      for (std::int64_t i = 0; i < 34; ++i)
        list.push_back(static_cast<std::int32_t>((5 * i + rank) % sizes.vocab_size));
      batches.assign(2, {.tokens = {list.data(), {33}}, .targets = {list.data() + 1, {33}}, .sequences = 3});
    }
    std::vector<std::int32_t> list;
    std::vector<TokenBatch> batches;
  };
};

TEST(Loads, CoverAllFeaturesOfABatch) {
  EXPECT_EQ(all_loads(3).size(), 24u);
  EXPECT_EQ(all_loads(1).size(), 12u);
  const Dropping::Data data(0, Dropping::config());
  const LoadedBatches<TokenBatch> loaded(data.batches,
                                         {.noise = true, .documents = true, .targets = Counting::some, .sequences = 2});
  const TokenBatch& batch = loaded.batches().front();
  EXPECT_EQ(batch.sequences, 2);
  EXPECT_EQ(batch.tokens.numel(), 22);
  EXPECT_EQ(batch.documents.size(), 23u);
  EXPECT_EQ(batch.counts().valid_targets, 7);
  EXPECT_NE(batch.noise.key, 0u);
}

/// Calls body(training, data) on one rank.
template <class Body>
void with_dropping(Body body) {
  using Model = TestedModel<Dropping, RunTimeAny>;
  comm::Threads<>::run(1, {}, [&](comm::Threads<>& communicator) {
    train::Training<Model> training(communicator, Model(Dropping::config()), Dropping::size(), detail::fsdp2());
    training.initialize(3);
    body(training, Dropping::Data(0, Dropping::config()));
  });
}

TEST(Loads, DropoutAppliesToTrainingOnly) {
  with_dropping([](auto& training, const Dropping::Data& data) {
    const LoadedBatches<TokenBatch> noisy(data.batches, {.noise = true, .sequences = 3});
    for (int step = 0; step < 2; ++step) training.step(data.batches, {.lr = 1e-2});  // B begins at zero
    auto& executor = training.executor();
    EXPECT_EQ(executor.evaluate(noisy.batches().front()), executor.evaluate(data.batches.front()));
    EXPECT_NE(executor.train(noisy.batches(), 1.0f), executor.train(data.batches, 1.0f));
  });
}

TEST(Loads, ADryRunIgnoresTheBatchOfAnEarlierPass) {
  with_dropping([](auto& training, const Dropping::Data& data) {
    training.executor().evaluate(data.batches.front());
    EXPECT_EQ(shared_sequences, 3);
  });
}

TEST(Loads, MemoryOfAdaptersWithDropoutIsPlanned) { check_model_loads<Dropping>(); }

TEST(Loads, MemoryOfUserDefinedUnitsIsPlanned) {
  for (const Takes each : {Takes::for_noise, Takes::for_documents, Takes::for_sequences})
    EXPECT_EQ(failures_with(takes, each, check_model_loads<Dropping>), std::vector<std::string>{});
}

TEST(Loads, FindsMemoryThatNoPlanIncludes) {
  const auto found = failures_with(takes, Takes::for_each_document, check_model_loads<Dropping>);
  expect_sentence(found, "a model trains without an error",
                  "2 ranks, fsdp2, tiling off, 3 sequences, without noise, with packed documents, every target counts",
                  "the dry run planned less than this step needs");
}

/// A forecaster whose entry computes its gradient with the wrong sign.
template <class L>
struct WrongEntry : forecaster::Entry<L> {
  using Base = forecaster::Entry<L>;
  void backward(nn::Context<L>& context, const typename Base::Types::Gradients& gradients,
                const Tensor<const float>& input, Tensor<const typename Base::Compute> dy) const {
    Base::backward(context, gradients, input, dy);
    if constexpr (!L::Device::counts_only)
      for (float& value :
           std::span(gradients.weight.tensor.data(), static_cast<std::size_t>(gradients.weight.tensor.numel())))
        value = -value;
  }
};
template <class StackT>
struct WrongForecaster : forecaster::Forecaster<StackT> {
  using Base = forecaster::Forecaster<StackT>;
  using Base::Base;
  using Entry = WrongEntry<typename StackT::Local>;
  template <class Other>
  using On = WrongForecaster<Other>;
  Entry entry() const { return {Base::entry()}; }
};

struct Wrong {
  template <class Stack>
  using Model = WrongForecaster<Stack>;
  static forecaster::Config config() {
    return {.series = 3, .hidden = 16, .intermediate = 24, .layers = 1, .heads = 2};
  }
  static train::StepSize size() { return {.sequences = 2, .sequence_length = 8, .threads = 1}; }
  struct Data {
    Data(int rank, const forecaster::Config& config) {
      const forecaster::Seasons source{.series = config.series, .length = 8};
      storage = source.storage(2, [](std::int64_t bytes) {
        return std::shared_ptr<std::byte>(new std::byte[static_cast<std::size_t>(bytes)],
                                          std::default_delete<std::byte[]>());
      });
      batches.push_back(source.fill(storage, std::vector<std::int64_t>{2 * rank, 2 * rank + 1}));
    }
    forecaster::Seasons::Storage storage;
    std::vector<forecaster::Batch> batches;
  };
};

TEST(WrongModels, AWrongGradientSignIsFound) {
  expect_failure(check_model_gradients<Wrong>, "gradients are the derivatives of the loss",
                 "2 ranks, fsdp2, tiling off, rank", "the largest gradient of input.weight");
}

}  // namespace
}  // namespace fsdp::testing
