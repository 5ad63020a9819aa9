// SPDX-License-Identifier: Apache-2.0
/// @file
/// The Inference of a model, whose weights it loads from a folder.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/data/batches.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/feed.hpp>
#include <tessera/trainer/run/first_weights.hpp>

namespace fsdp::train {

/// Loads a folder's weights, with another folder's adapters unless `adapter` is empty. Collective; rank 0 warns.
template <class Model>
void load(typename Model::Stack::Comm& communicator, const LaunchOptions& launch, ShardedModel<Model>& module,
          const std::string& folder, const std::string& adapter = {}) {
  const auto load = [&](const checkpoint::Warn& warn) {
    load_agreed_weights(communicator, module, folder, warn, adapter);
  };
  load_with_disk_deadline(communicator, launch, folder, load);
}

/// Computes forward passes of a model over tokens. The model's weights are in a folder.
template <class Model>
class InferenceOf final : public Inference {
 public:
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  using Compute = typename Stack::Precision::Compute;

  /// Allocates nothing. `folder`, `adapter`: as in ModelChoice. Communicator and launch must outlive it.
  InferenceOf(Comm& communicator, const LaunchOptions& launch, Model model, std::string folder, std::string adapter,
              typename Stack::Sharding sharding, typename Stack::Tiling tiling)
      : communicator_(communicator),
        ranks_(communicator),
        launch_(launch),
        model_(std::move(model)),
        folder_(std::move(folder)),
        adapter_(std::move(adapter)),
        sharding_(std::move(sharding)),
        tiling_(std::move(tiling)) {}

  const typename Model::Config& config() const { return model_.config(); }  ///< config of the model

  const comm::Ranks& ranks() const override { return ranks_; }
  std::int64_t vocabulary() const override { return vocabulary_of(model_); }
  std::optional<std::int64_t> longest_sequence() const override {
    if constexpr (HasLongestSequence<typename Model::Config>) return model_.config().longest_sequence();
    return std::nullopt;
  }
  bool continues() const override { return Executor<Model>::continues; }

  /// The source that `evaluate` reads; it must outlive the calls of `evaluate`. Call this before `begin`.
  void read(const data::TextSource& source) { source_ = &source; }

  void begin(const StepSize& size, Purpose purpose) override {
    size_ = size;
    evaluation_.emplace(communicator_, model_, size, sharding_, tiling_, purpose);
    train::load<Model>(communicator_, launch_, evaluation_->module(), folder_, adapter_);
    if (source_ != nullptr) batches_.emplace(*source_, size.sequences, 1, device::host_memory<typename Comm::Device>);
  }
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::span<const std::int64_t> rows) override {
    if constexpr (Executor<Model>::generates)
      return logits_of<Compute>(tokens, size_.sequences, std::ssize(rows), vocabulary(),
                                [&](auto& batch, auto& out) { evaluation().executor().logits(batch, rows, out); });
    else
      throw Error("inference: this model's head has no logits");
  }
  std::vector<float> next_logits(std::span<const std::int32_t> tokens,
                                 std::span<const std::int32_t> positions) override {
    if constexpr (Executor<Model>::continues)
      return logits_of<Compute>(tokens, size_.sequences, size_.sequences, vocabulary(), [&](auto& batch, auto& out) {
        evaluation().executor().next_logits(batch, positions, out);
      });
    else
      throw Error("inference: this model's blocks cannot continue a sequence");
  }
  HeldOutBatch evaluate(std::span<const std::int64_t> samples) override {
    require(batches_.has_value(), "inference: evaluate needs the data source; call read before begin");
    return evaluate_batch(evaluation().executor(), evaluation().counts(), *batches_,
                          evaluation().module().sequence_group(), samples);
  }

 private:
  Evaluation<Model>& evaluation() {
    require(evaluation_.has_value(), "inference: a pass was requested before begin planned one; call begin first");
    return *evaluation_;
  }

  Comm& communicator_;
  comm::Ranks ranks_;
  const LaunchOptions& launch_;
  Model model_;
  std::string folder_, adapter_;
  typename Stack::Sharding sharding_;
  typename Stack::Tiling tiling_;
  StepSize size_;
  const data::TextSource* source_ = nullptr;
  std::optional<Evaluation<Model>> evaluation_;
  std::optional<Batches<data::TextSource>> batches_;
};

}  // namespace fsdp::train
