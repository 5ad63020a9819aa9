// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model without tokens, with two kinds of blocks of different widths. Entry, head and batch are those of
/// examples/06_own_model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include <examples/06_own_model/batch.hpp>
#include <examples/06_own_model/modules.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/one_of.hpp>

#include <support/alternating_llama.hpp>

namespace fsdp::test {

struct SeriesConfig {
  std::int64_t features = 5;
  std::int64_t hidden = 8;
  std::int64_t intermediate = 11;
  std::int64_t outputs = 3;
  std::int64_t layers = 3;

  static SeriesConfig read(const std::filesystem::path&) { return {}; }
  std::string write() const { return "{}\n"; }
  void validate() const {
    require<InputError>(features > 0 && hidden > 0 && intermediate > 0 && outputs > 0 && layers > 0,
                        "model: a size is not positive");
  }
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("features", self.features, "numbers of an input");
    visitor("hidden", self.hidden, "width of the residual stream");
    visitor("intermediate", self.intermediate, "width inside the MLP");
    visitor("outputs", self.outputs, "numbers to predict");
    visitor("layers", self.layers, "blocks");
  }
};

using SeriesBatch = forecaster::Batch;

/// The forecaster's entry. Its backward needs no weights; `takes_weights` makes it request them anyway.
template <class L, bool takes_weights>
struct SeriesEntry : forecaster::LinearEntry<L> {};
template <class L>
struct SeriesEntry<L, true> : forecaster::LinearEntry<L> {
  using Linear = forecaster::LinearEntry<L>;
  void backward(nn::Context<L>& context, const typename Linear::Types::Weights&,
                const typename Linear::Types::Gradients& gradients, const Tensor<const float>& input,
                Tensor<const typename Linear::Compute> dy) const {
    Linear::backward(context, gradients, input, dy);
  }
};

/// y = x, with an unused weight: its backward takes no weights and writes no gradient.
template <class L>
struct Skip : nn::ModuleTypes<L, forecaster::LinearFields> {
  using Types = nn::ModuleTypes<L, forecaster::LinearFields>;
  using typename Types::Compute;
  using Shared = nn::Nothing;
  struct Saved {};

  std::int64_t hidden = 0;

  typename Types::Parameters parameters() const { return {{"unused", {hidden}, nn::Initial::zeros}}; }
  void forward(nn::Context<L>& context, const Shared&, const typename Types::Weights&, Saved&, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = y});
  }
  void backward(nn::Context<L>&, const Shared&, const typename Types::Gradients&, const Saved&, Tensor<Compute>) const {
  }
};

/// A Model of MLP blocks with an identity block between them.
template <class StackT, bool entry_takes_weights = false>
class SeriesModel {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = SeriesConfig;
  using Batch = SeriesBatch;
  using Entry = SeriesEntry<Local, entry_takes_weights>;
  using Mlp = MlpBlock<Local, nn::Nothing>;
  using Block = nn::OneOf<Mlp, Skip<Local>>;
  using Head = forecaster::SquaredErrorHead<Local>;
  template <class Other>
  using On = SeriesModel<Other, entry_takes_weights>;

  explicit SeriesModel(const Config& config, UnitOptions units = {}) : config_(config), units_(std::move(units)) {
    config.validate();
  }

  const Config& config() const { return config_; }
  const UnitOptions& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden; }

  Entry entry() const { return {{{}, config_.features, config_.hidden}}; }
  int blocks() const { return static_cast<int>(config_.layers); }
  Block block(int index) const {
    if (index % 2 == 1) return Skip<Local>{{}, config_.hidden};
    return Mlp{{{}, config_.hidden, config_.intermediate + index, 1e-5f, (config_.layers + 1) / 2}};
  }
  Head head() const { return {{}, config_.hidden, config_.outputs}; }
  std::string prefix(int index) const { return "blocks." + std::to_string(index) + "."; }

  void validate(const Batch& batch, std::int64_t sequence_length) const {
    batch.validate(sequence_length, config_.features, config_.outputs);
  }
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    return Batch::unread(sequences, sequence_length, config_.features, config_.outputs);
  }
  double flops(std::int64_t tokens, std::int64_t) const {
    return 6.0 * static_cast<double>(tokens * parameter_count(*this));
  }

 private:
  Config config_;
  UnitOptions units_;
};

}  // namespace fsdp::test
