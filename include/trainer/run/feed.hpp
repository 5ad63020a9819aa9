// SPDX-License-Identifier: Apache-2.0
/// @file
/// Prefetches the next step's batches, and the counts of its targets over all ranks, while the device is busy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <tessera/comm/communicator.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/execution/count_exchange.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/data/batches.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>

namespace fsdp::train {

/// Triple-buffered input of a training loop: one step is drawn ahead, two may still be in use by the device.
template <comm::Communicator C, data::Source Source>
class Feed {
 public:
  using Device = typename C::Device;
  using Batch = typename Source::Batch;

  struct Step {
    std::span<const Batch>
        micro_batches;   ///< micro-batches of this rank's group, may be empty; valid until two more steps were taken
    BatchCounts counts;  ///< over all ranks
  };

  /// `group`: this rank's group, if several ranks share each sequence. `micro_batches`: largest number per rank.
  /// `pieces`: see Batches::draw. `exchange` must not be used by others. Exchange, source and signals must outlive the
  /// feed.
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
  /// Returns the signals that any rank had received when the last exchange began; the same on all ranks. Throws like
  /// `take`.
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

}  // namespace fsdp::train
