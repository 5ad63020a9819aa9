// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/llama_training.hpp>

#include <optional>
#include <type_traits>

#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/run/feed.hpp>

#include <data/numbered_source.hpp>
#include <support/stacks/trainer_run.hpp>
#include <support/stacks/trainers.hpp>

namespace fsdp::test {
namespace {

using Comm = comm::Threads<>;
template <class Tiling>
using Tiled = Llama<Stack<FullyShard<>, Comm, Fp32, Tiling>>;
using Model = Tiled<tiling::RunTimeTiling>;
using Training = train::Training<Model>;

// The optimizer, the base class of the module and the Meta instance of dry runs have the same type for all tilings.
static_assert(std::is_same_v<train::Training<Tiled<tiling::Untiled>>::Optimizer, Training::Optimizer>);
static_assert(std::is_base_of_v<ShardedModule<Stack<FullyShard<>, Comm, Fp32>>, Training::Module>);
static_assert(std::is_same_v<plan::MetaTwin<Tiled<tiling::StaticTiles<4>>>, plan::MetaTwin<Model>>);

}  // namespace

LlamaConfig two_layers() {
  LlamaConfig config = llama_preset("tiny");
  config.layers = 2;
  return config;
}

struct LlamaTraining::Parts {
  std::optional<Training> training = {};
  std::optional<train::Evaluation<Model>> evaluation = {};

  ShardedModel<Model>& module() { return training ? training->module() : evaluation->module(); }
  Executor<Model>& executor() { return training ? training->executor() : evaluation->executor(); }
};

LlamaTraining::LlamaTraining(Comm& communicator, const train::StepSize& size, Purpose purpose,
                             const tiling::RunTimeTiling& tiling, const Observer& observer)
    : parts_(std::make_unique<Parts>()) {
  const FullyShard<> sharding;
  if (purpose == Purpose::train)
    parts_->training.emplace(communicator, Model(two_layers()), size, sharding, tiling,
                             Training::Options{.observer = observer});
  else
    parts_->evaluation.emplace(communicator, Model(two_layers()), size, sharding, tiling, purpose);
}
LlamaTraining::~LlamaTraining() = default;

const plan::Plan& LlamaTraining::plan() const {
  return parts_->training ? parts_->training->plan() : parts_->evaluation->plan();
}
device::BytesByKind LlamaTraining::bytes() { return parts_->module().peak_bytes(); }
std::int64_t LlamaTraining::peak_bytes() const { return parts_->training->peak_bytes(); }
std::int64_t LlamaTraining::arena_peak() { return parts_->module().arena().peak(); }
std::vector<std::span<float>> LlamaTraining::weights() {
  std::vector<std::span<float>> all;
  for (const auto& piece : parts_->module().shards())
    all.emplace_back(piece.main.data(), static_cast<std::size_t>(piece.main.numel()));
  return all;
}
void LlamaTraining::sync_model_weights() { parts_->module().sync_model_weights(); }
void LlamaTraining::initialize(std::uint64_t seed) { optim::initialize(parts_->module(), seed); }
CountExchange<Comm>& LlamaTraining::counts() { return parts_->evaluation->counts(); }

double LlamaTraining::step(std::span<const TokenBatch> micro_batches, const device::StepInputs& inputs) {
  return parts_->training->step(micro_batches, inputs);
}
double LlamaTraining::step(const TokenBatch& batch, const device::StepInputs& inputs) {
  return parts_->training->step(batch, inputs);
}
double LlamaTraining::evaluate(const TokenBatch& batch) { return parts_->executor().evaluate(batch); }
void LlamaTraining::evaluate_logits(const TokenBatch& batch, std::span<const std::int64_t> rows, Tensor<float> logits) {
  parts_->executor().evaluate_logits(batch, rows, logits);
}
void LlamaTraining::logits(const TokenBatch& batch, std::span<const std::int64_t> rows, Tensor<float> logits) {
  parts_->executor().logits(batch, rows, logits);
}
void LlamaTraining::next_logits(const TokenBatch& batch, std::span<const std::int32_t> positions,
                                Tensor<float> logits) {
  parts_->executor().next_logits(batch, positions, logits);
}
train::MeanLoss LlamaTraining::mean_loss(std::int64_t sequences, std::span<const std::int64_t> samples) {
  const NumberedSource source;
  train::Batches<NumberedSource> batches(source, sequences, 1, device::host_memory<device::Cpu>);
  return train::mean_loss(
      parts_->module().communicator(),
      [&](std::span<const std::int64_t> mine) {
        return train::evaluate_batch(parts_->executor(), counts(), batches, parts_->module().sequence_group(), mine);
      },
      sequences, samples, [](std::int64_t, std::int64_t) {});
}

void train_on_cpu(const train::TrainOptions& options) { run_trainer<Model>(options); }

}  // namespace fsdp::test
