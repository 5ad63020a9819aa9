// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model without tokens: float inputs, two kinds of blocks, mean squared error. For ranks on the CPU, in float.
#pragma once

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fsdp/core/error.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/data/source.hpp>
#include <fsdp/module/stack.hpp>
#include <fsdp/module/units.hpp>
#include <fsdp/nn/batch.hpp>
#include <fsdp/nn/one_of.hpp>
#include <fsdp/nn/projection.hpp>
#include <fsdp/nn/settled_plan.hpp>

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
  template <class Visitor>
  void visit(Visitor&& visitor) {
    visit_values(*this, visitor);
  }
  template <class Visitor>
  void visit(Visitor&& visitor) const {
    visit_values(*this, visitor);
  }

 private:
  template <class Self, class Visitor>
  static void visit_values(Self& self, Visitor& visitor) {
    visitor("features", self.features, "numbers of an input");
    visitor("hidden", self.hidden, "width of the residual stream");
    visitor("intermediate", self.intermediate, "width inside the MLP");
    visitor("outputs", self.outputs, "numbers to predict");
    visitor("layers", self.layers, "blocks");
  }
};

/// Inputs [T, F] and what they should give [T, O].
struct SeriesBatch {
  Tensor<const float> inputs;
  Tensor<const float> targets;
  std::int64_t sequences = 0;

  BatchCounts counts() const {
    const std::int64_t length = inputs.rows() / sequences;
    return {.valid_targets = targets.rows(), .squares = sequences * length * length};
  }
  std::pair<std::int64_t, std::int64_t> pattern() const { return {sequences, inputs.rows()}; }

  struct OnDevice {
    Tensor<const float> input, targets;
  };
  template <class L>
  OnDevice upload(nn::Context<L>& context) const {
    return {nn::on_device(context, inputs), nn::on_device(context, targets)};
  }
};

template <class V>
struct LinearFields {
  V weight;
};

/// y = x W^T. Its backward needs no weights; `takes_weights` makes it ask for them all the same.
template <class L, bool takes_weights>
struct LinearEntry : nn::ModuleTypes<L, LinearFields> {
  using Types = nn::ModuleTypes<L, LinearFields>;
  using typename Types::Compute;
  using Shared = nn::Nothing;

  std::int64_t features = 0, hidden = 0;

  Shared share(nn::Context<L>&) const { return {}; }
  typename Types::Parameters parameters() const {
    return {{"/input.weight", {hidden, features}, nn::Initial::normal(0.3)}};
  }
  void forward(nn::Context<L>& context, const typename Types::Weights& weights, const Tensor<const float>& input,
               Tensor<Compute> y) const {
    nn::project<L, 1>(context, input, {weights.weight}, y);
  }
  void backward(nn::Context<L>& context, const typename Types::Weights&, const typename Types::Gradients& gradients,
                const Tensor<const float>& input, Tensor<const Compute> dy) const requires takes_weights {
    nn::project_backward_weight<L, 1>(context, dy, input, {gradients.weight});
  }
  void backward(nn::Context<L>& context, const typename Types::Gradients& gradients, const Tensor<const float>& input,
                Tensor<const Compute> dy) const requires(!takes_weights) {
    nn::project_backward_weight<L, 1>(context, dy, input, {gradients.weight});
  }
};

/// y = x, with a weight that nothing reads: its backward takes none and writes no gradient.
template <class L>
struct Skip : nn::ModuleTypes<L, LinearFields> {
  using Types = nn::ModuleTypes<L, LinearFields>;
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

/// The sum over rows of |x W^T - target|^2.
template <class L>
struct SquaredError : nn::ModuleTypes<L, LinearFields> {
  using Types = nn::ModuleTypes<L, LinearFields>;
  using typename Types::Compute;
  using typename Types::Weights;

  std::int64_t hidden = 0, outputs = 0;

  typename Types::Parameters parameters() const {
    return {{"/output.weight", {outputs, hidden}, nn::Initial::normal(0.3)}};
  }
  void loss(nn::Context<L>& context, const Weights& weights, const typename Types::Gradients& gradients,
            Tensor<const Compute> x, const Tensor<const float>& targets, float scale, Tensor<Compute> dx,
            Tensor<double> loss) const {
    typename L::Frame frame(context.arena);
    const auto error = frame.template allocate<Compute>({x.rows(), outputs});  // [T, O], then its gradient
    add_loss(context, weights, x, targets, error, loss);
    if constexpr (!L::Device::counts_only)
      for (std::int64_t i = 0; i < error.numel(); ++i) error[i] *= 2 * scale;
    nn::project_backward_weight<L, 1>(context, error, x, {gradients.weight});
    nn::project_backward_input<L, 1>(context, error, {weights.weight}, dx);
  }
  void loss_only(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x,
                 const Tensor<const float>& targets, Tensor<double> loss) const {
    typename L::Frame frame(context.arena);
    add_loss(context, weights, x, targets, frame.template allocate<Compute>({x.rows(), outputs}), loss);
  }

 private:
  void add_loss(nn::Context<L>& context, const Weights& weights, Tensor<const Compute> x,
                const Tensor<const float>& targets, Tensor<Compute> error, Tensor<double> loss) const {
    nn::project<L, 1>(context, x, {weights.weight}, error);
    if constexpr (!L::Device::counts_only)
      for (std::int64_t i = 0; i < error.numel(); ++i) {
        error[i] -= targets[i];
        loss[0] += static_cast<double>(error[i]) * static_cast<double>(error[i]);
      }
  }
};

/// A Model: MLP blocks with one that skips between them.
template <class StackT, bool entry_takes_weights = false>
class SeriesModel {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = SeriesConfig;
  using Batch = SeriesBatch;
  using Entry = LinearEntry<Local, entry_takes_weights>;
  using Mlp = MlpBlock<Local, nn::Nothing>;
  using Block = nn::OneOf<Mlp, Skip<Local>>;
  using Head = SquaredError<Local>;
  template <class Other>
  using On = SeriesModel<Other, entry_takes_weights>;

  explicit SeriesModel(const Config& config, Units units = {}) : config_(config), units_(std::move(units)) {
    config.validate();
  }

  const Config& config() const { return config_; }
  const Units& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden; }

  Entry entry() const { return {{}, config_.features, config_.hidden}; }
  int blocks() const { return static_cast<int>(config_.layers); }
  Block block(int index) const {
    if (index % 2 == 1) return Skip<Local>{{}, config_.hidden};
    return Mlp{{{}, config_.hidden, config_.intermediate + index, 1e-5f, (config_.layers + 1) / 2}};
  }
  Head head() const { return {{}, config_.hidden, config_.outputs}; }
  std::string prefix(int index) const { return "blocks." + std::to_string(index) + "."; }

  void validate(const Batch& batch, std::int64_t sequence_length) const {
    require<InputError>(batch.inputs.rows() == batch.sequences * sequence_length, "a batch has ", batch.inputs.rows(),
                        " rows");
    for (std::int64_t i = 0; i < batch.inputs.numel(); ++i)
      require<InputError>(std::isfinite(batch.inputs[i]), "input ", i, " is ", batch.inputs[i]);
  }
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    const std::int64_t rows = sequences * sequence_length;
    return {.inputs = nn::unbacked<const float>({rows, config_.features}),
            .targets = nn::unbacked<const float>({rows, config_.outputs}),
            .sequences = sequences};
  }
  double flops(std::int64_t tokens, std::int64_t) const {
    return 6.0 * static_cast<double>(tokens * parameter_count(*this));
  }

 private:
  Config config_;
  Units units_;
};

/// A Source: sample i is a sequence of its own; the last ones are held out.
struct SeriesSource {
  using Batch = SeriesBatch;
  struct Storage {
    std::int64_t sequences = 0;
    std::shared_ptr<std::byte> memory = {};
  };

  SeriesConfig config = {};
  std::int64_t length = 6, samples = 40, held_out = 4;

  std::int64_t training() const { return samples - held_out; }
  std::int64_t validation() const { return held_out; }
  std::int64_t sequence_length() const { return length; }
  std::string text() const { return std::to_string(samples) + " made-up series"; }
  Storage storage(std::int64_t sequences, data::Allocate allocate) const {
    return {sequences, allocate(sequences * length * (config.features + config.outputs) * std::int64_t{sizeof(float)})};
  }
  /// Each target is a sum of two inputs. Missing samples are the first: there is no target that does not count.
  SeriesBatch fill(Storage& storage, std::span<const std::int64_t> chosen) const {
    const std::int64_t rows = storage.sequences * length;
    auto* const inputs = reinterpret_cast<float*>(storage.memory.get());
    auto* const targets = inputs + rows * config.features;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto sequence = static_cast<std::size_t>(row / length);
      const std::int64_t sample = sequence < chosen.size() ? chosen[sequence] : 0;
      const auto key = static_cast<std::uint64_t>(sample * length + row % length);
      for (std::int64_t i = 0; i < config.features; ++i)
        inputs[row * config.features + i] =
            static_cast<float>(mixed(64 * key + static_cast<std::uint64_t>(i)) >> 40) * 0x1p-23f - 1;
      for (std::int64_t o = 0; o < config.outputs; ++o)
        targets[row * config.outputs + o] =
            inputs[row * config.features + o] - 0.5f * inputs[row * config.features + o + 1];
    }
    return {.inputs = {inputs, {rows, config.features}},
            .targets = {targets, {rows, config.outputs}},
            .sequences = storage.sequences};
  }
};
static_assert(data::check_source<SeriesSource>());

}  // namespace fsdp::test
