// SPDX-License-Identifier: Apache-2.0
/// @file
/// What feeds the executors of Engine and Inference: prefetched batches, passes over numbered samples and over tokens,
/// and the size of the vocabulary.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/data/batches.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/run/engine.hpp>

namespace fsdp::train {

/// Triple-buffered input of a training loop: one step is drawn ahead, two may still be in use by the device.
template <comm::Communicator C, data::Source Source>
class Feed {
 public:
  using Device = typename C::Device;
  using Batch = typename Source::Batch;

  struct Step {
    /// Micro-batches of this rank's group, may be empty; valid until two more steps were taken.
    std::span<const Batch> micro_batches;
    BatchCounts counts;  ///< over all ranks
  };

  /// `group`: this rank's, if several share each sequence. `micro_batches`: the most per rank. `pieces`: see
  /// Batches::draw. `exchange` must not be used by others. Exchange, source and signals must outlive the feed.
  Feed(const SequenceGroup& group, CountExchange<C>& exchange, const Source& source, data::Sampler sampler,
       std::int64_t sequences, int micro_batches, int pieces, const comm::CatchSignals& signals)
      : group_(group),
        sampler_(std::move(sampler)),
        source_(&source),
        sequences_(sequences),
        pieces_(pieces),
        exchange_(&exchange),
        signals_(&signals),
        batches_{make(micro_batches), make(micro_batches), make(micro_batches)} {}

  /// The position in the data of the next step that `take` returns.
  data::Position position() const { return sampler_.position(); }
  void restore(const data::Position& position) { sampler_.restore(position); }

  /// Returns the next step's batches and counts. `more`: another step follows; prefetches it. Collective. If a rank
  /// cannot read its data, all ranks throw InputError.
  Step take(bool more) {
    if (!drawn_) draw();
    const Step step{.micro_batches = batches_[current_].micro_batches(), .counts = finished()};
    taken_ = sampler_.position();
    sampler_.advance();
    drawn_ = false;
    if (more) draw();
    return step;
  }
  /// Returns a piece of the step that was taken last, by its number among all ranks' pieces; valid until the next call.
  /// Only if steps are cut into pieces. Throws InputError if the source cannot read its data.
  const Batch& piece(int number) {
    if (!spare_) spare_.emplace(make(1));
    data::Sampler sampler = sampler_;
    sampler.restore(taken_);
    return spare_->draw_piece(sampler, number, pieces_);
  }
  /// Returns the signals that any rank had received when the last exchange began. Throws like `take`.
  const comm::SignalRequests& asked() {
    if (drawn_) finished();
    return exchange_->asked();
  }

 private:
  Batches<Source> make(int micro_batches) const {
    return {*source_, sequences_, micro_batches, device::host_memory<Device>};
  }

  /// Finishes the exchange for the batches drawn last and returns their counts over all ranks.
  const BatchCounts& finished() {
    if (!counts_) counts_ = exchange_->finish();
    return *counts_;
  }

  void draw() {
    drawn_ = true;
    counts_.reset();
    current_ = (current_ + 1) % batches_.size();
    exchange_->start(
        [&] {
          batches_[current_].draw(sampler_, group_.index, group_.count, pieces_);
          return batches_[current_].counts(group_.member, group_.size);
        },
        signals_->asked());
  }

  SequenceGroup group_;
  data::Sampler sampler_;
  const Source* source_;
  std::int64_t sequences_;
  int pieces_;
  CountExchange<C>* exchange_;
  const comm::CatchSignals* signals_;
  std::optional<BatchCounts> counts_;       ///< counts of the batches drawn last; empty until exchanged
  std::array<Batches<Source>, 3> batches_;  ///< the device may still read two steps while the third is drawn
  std::optional<Batches<Source>> spare_;    ///< used by `piece`
  data::Position taken_;                    ///< position of the step that was taken last
  std::size_t current_ = 0;
  bool drawn_ = false;
};

/// Engine::evaluate with an Executor. `group`: this rank's group of ranks that share each sequence.
template <class ExecutorT, class Comm, data::Source Source>
HeldOutBatch evaluate_batch(ExecutorT& executor, CountExchange<Comm>& exchange, Batches<Source>& batches,
                            const SequenceGroup& group, std::span<const std::int64_t> samples,
                            const comm::SignalRequests& asked = {}) {
  const typename Source::Batch* batch = nullptr;
  exchange.start(
      [&] {
        batch = &batches.fill(samples);
        return nn::counts_of_part(*batch, group.member, group.size);
      },
      asked);
  const std::int64_t targets = exchange.finish().valid_targets;
  if (const int stop = exchange.asked().stop; stop != 0) return {.stop = stop};
  return {.loss = executor.evaluate(*batch), .targets = targets};
}

/// Calls call(batch, logits) for a batch of tokens, and returns the logits [rows, V] that it wrote.
template <class Compute, class Call>
std::vector<float> logits_of(std::span<const std::int32_t> tokens, std::int64_t sequences, std::int64_t rows,
                             std::int64_t vocabulary, Call call) {
  std::vector<Compute> memory(static_cast<std::size_t>(rows * vocabulary));
  const TokenBatch batch{.tokens = {tokens.data(), {std::ssize(tokens)}}, .targets = {}, .sequences = sequences};
  const Tensor<Compute> logits(memory.data(), {rows, vocabulary});
  call(batch, logits);
  return {memory.begin(), memory.end()};
}

/// Returns the size of the vocabulary of a model of text.
template <class Model>
std::int64_t vocabulary_of(const Model& model) {
  if constexpr (requires { model.config().vocab_size; }) {
    return model.config().vocab_size;
  } else {
    static_assert(
        nn::GeneratingHead<typename Model::Head, typename Model::Local>,
        "fsdp: nothing says how many tokens this model knows, so that text cannot be checked against it; give "
        "its Config a std::int64_t vocab_size, or its head logits");
    return model.head().logits_columns();
  }
}

}  // namespace fsdp::train
