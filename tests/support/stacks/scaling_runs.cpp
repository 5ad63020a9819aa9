// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/scaling_runs.hpp>

#include <fstream>
#include <iterator>
#include <utility>

#include <examples/06_own_model/batch.hpp>
#include <examples/06_own_model/modules.hpp>
#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/testing/model_runs.hpp>

namespace fsdp::test {
namespace {

struct ScalingConfig {
  std::int64_t features = 3;
  std::int64_t hidden = 5;
  std::int64_t outputs = 2;
  std::int64_t layers = 3;
  ScaleKind kind = ScaleKind::columns;

  /// The file has the kind as one digit; sizes are fixed.
  static ScalingConfig read(const std::filesystem::path& folder) {
    std::ifstream file(folder / "config.json");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t digit = text.find_first_of("01234");
    require<InputError>(digit != std::string::npos, folder.string(), ": config.json says no kind");
    return {.kind = static_cast<ScaleKind>(text[digit] - '0')};
  }
  std::string write() const { return message("{\"kind\": ", static_cast<int>(kind), "}\n"); }
  void validate() const {}
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("features", self.features, "numbers of an input");
    visitor("hidden", self.hidden, "width of the residual stream");
    visitor("outputs", self.outputs, "numbers to predict");
    visitor("layers", self.layers, "blocks");
  }
};

/// y = x (1 + w), where w scales columns.
template <class L>
struct Scaling : nn::ModuleTypes<L, forecaster::LinearFields> {
  using Types = nn::ModuleTypes<L, forecaster::LinearFields>;
  using typename Types::Compute;
  using Shared = nn::Nothing;
  struct Saved {
    Tensor<Compute> x;  // [T, H]
  };

  std::int64_t hidden = 0;
  ScaleKind kind = ScaleKind::columns;

  typename Types::Parameters parameters() const {
    if (kind == ScaleKind::scalar) return {{"scale", Shape{}, nn::Initial::normal(0.3)}};
    if (kind == ScaleKind::empty) return {{"scale", {0, 8}}};
    return {{"scale", {hidden}, nn::Initial::normal(0.3)}};
  }
  void forward(nn::Context<L>& context, const Shared&, const typename Types::Weights& weights, Saved& saved,
               Tensor<const Compute> x, Tensor<Compute> y) const {
    saved.x = context.template save<Compute>(x.shape());
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = saved.x});
    device::enqueue(context.stream, device::Copy<Compute>{.x = x, .y = y});
    if constexpr (!L::Device::counts_only)
      if (reads(x))
        for (std::int64_t i = 0; i < y.numel(); ++i) y.data()[i] *= 1 + weights.weight.data()[place_of(i)];
  }
  void backward(nn::Context<L>&, const Shared&, const typename Types::Weights& weights,
                const typename Types::Gradients& gradients, const Saved& saved, Tensor<Compute> dy) const {
    if constexpr (!L::Device::counts_only) {
      if (!reads(saved.x)) return;
      std::vector<float> sums(static_cast<std::size_t>(gradients.weight.tensor.numel()));
      for (std::int64_t i = 0; i < dy.numel(); ++i) {
        sums[static_cast<std::size_t>(place_of(i))] += dy.data()[i] * saved.x.data()[i];
        dy.data()[i] *= 1 + weights.weight.data()[place_of(i)];
      }
      if (!gradients.weight.wanted()) return;
      const bool adds = gradients.weight.next() == Write::accumulate;
      float* const to = gradients.weight.tensor.data();
      for (const auto& [i, sum] : ranges::views::enumerate(sums)) to[i] = sum + (adds ? to[i] : 0);
    }
  }

 private:
  bool reads(Tensor<const Compute> x) const {
    return kind != ScaleKind::empty && (kind != ScaleKind::by_data || x.data()[0] > 0);
  }
  std::int64_t place_of(std::int64_t i) const { return kind == ScaleKind::scalar ? 0 : i % hidden; }
};

/// A Model of scaling blocks.
template <class StackT>
class ScalingModel {
 public:
  using Stack = StackT;
  using Local = typename Stack::Local;
  using Config = ScalingConfig;
  using Batch = forecaster::Batch;
  using Entry = forecaster::LinearEntry<Local>;
  using Block = Scaling<Local>;
  using Head = forecaster::SquaredErrorHead<Local>;
  template <class Other>
  using On = ScalingModel<Other>;

  explicit ScalingModel(const Config& config, UnitOptions units = {}) : config_(config), units_(std::move(units)) {}

  const Config& config() const { return config_; }
  const UnitOptions& units() const { return units_; }
  std::int64_t hidden() const { return config_.hidden; }

  Entry entry() const { return {{}, config_.features, config_.hidden}; }
  int blocks() const { return static_cast<int>(config_.layers); }
  Block block(int) const { return {{}, config_.hidden, config_.kind}; }
  Head head() const { return {{}, config_.hidden, config_.outputs}; }
  std::string prefix(int index) const {
    return config_.kind == ScaleKind::shared ? "blocks." : "blocks." + std::to_string(index) + ".";
  }

  void validate(const Batch& batch, std::int64_t sequence_length) const {
    batch.validate(sequence_length, config_.features, config_.outputs);
  }
  Batch unread_batch(std::int64_t sequences, std::int64_t sequence_length) const {
    return Batch::unread(sequences, sequence_length, config_.features, config_.outputs);
  }
  double flops(std::int64_t tokens, std::int64_t) const { return static_cast<double>(tokens); }

 private:
  Config config_;
  UnitOptions units_;
};

/// One rank's micro-batches of pseudo-random numbers that depend only on their index.
struct ScalingData {
  static constexpr std::int64_t length = 3, sequences = 2, micro_batches = 3;

  ScalingData(int rank, const ScalingConfig& config) {
    constexpr std::int64_t rows = length * sequences;
    const auto number = [](std::int64_t i) {
      return static_cast<float>(static_cast<double>(mixed(static_cast<std::uint64_t>(i)) >> 11) * 0x1p-52 - 1.0);
    };
    memory.reserve(2 * micro_batches);
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      auto& x = memory.emplace_back();
      auto& y = memory.emplace_back();
      for (std::int64_t i = 0; i < rows * config.features; ++i) x.push_back(number(1000 * rank + 100 * m + i));
      for (std::int64_t i = 0; i < rows * config.outputs; ++i) y.push_back(number(5000 + 1000 * rank + 100 * m + i));
    }
    for (std::size_t m = 0; m < micro_batches; ++m)
      batches.push_back({.inputs = {memory[2 * m].data(), {rows, config.features}},
                         .targets = {memory[2 * m + 1].data(), {rows, config.outputs}},
                         .sequences = sequences});
  }
  std::vector<std::vector<float>> memory;
  std::vector<forecaster::Batch> batches;
};

using Tested = ScalingModel<testing::ModelStack<RunTimeAny>>;

testing::ModelTask<Tested, ScalingData> model_task(const ScalingTask& task) {
  return {.config = {.kind = task.kind},
          .size = {.sequences = ScalingData::sequences,
                   .sequence_length = ScalingData::length,
                   .micro_batches = ScalingData::micro_batches,
                   .threads = 1},
          .sharding = task.strategy,
          .units = task.units};
}

}  // namespace

ScalingRun train_scaling(const ScalingTask& task, int steps, const std::filesystem::path& save_to,
                         const std::filesystem::path& resume) {
  const auto run = testing::train_model(2, model_task(task), {.steps = steps, .save_to = save_to, .resume = resume});
  return {run.losses, run.planned, run.taken};
}

void check_scaling_gradients(std::string_view where, int ranks, const ScalingTask& task) {
  testing::check_model_gradients(where, ranks, model_task(task));
}

ScalingStep step_scaling(comm::Threads<>& communicator, const ScalingTask& task) {
  const auto each = model_task(task);
  train::Training<Tested> training(communicator, Tested(each.config, each.units), each.size, each.sharding);
  training.initialize(3);
  const auto weights = [&] {
    std::map<std::string, std::vector<float>> all;
    for (const auto& piece : training.module().shards()) {
      std::vector<float>& list = all[piece.parameter->name];
      list.insert(list.end(), piece.main.data(), piece.main.data() + piece.main.numel());
    }
    return all;
  };
  ScalingStep step;
  step.before = weights();
  const ScalingData data(communicator.rank(), each.config);
  training.step(data.batches, {.lr = 1e-2});
  step.after = weights();
  return step;
}

}  // namespace fsdp::test
