// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batches of the steps to come: drawn and counted one step ahead, while the device is busy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <comm/communicator.hpp>
#include <comm/signals.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/data/source.hpp>
#include <fsdp/device/host_copy.hpp>
#include <fsdp/module/count_exchange.hpp>
#include <fsdp/train/batches.hpp>

namespace fsdp::train {

template <comm::Communicator C, data::Source Source>
class Feed {
 public:
  using Device = typename C::Device;
  using Batch = typename Source::Batch;

  struct Step {
    std::span<const Batch> micro_batches;  ///< this rank's, until two more steps were taken
    BatchCounts counts;                    ///< over all ranks
  };

  /// `exchange` is the feed's alone; it, the source and the signals must outlive it.
  Feed(C& communicator, CountExchange<C>& exchange, const Source& source, data::Sampler sampler, std::int64_t sequences,
       int micro_batches, const comm::CatchSignals& signals)
      : communicator_(&communicator),
        sampler_(std::move(sampler)),
        exchange_(&exchange),
        signals_(&signals),
        batches_{make(source, sequences, micro_batches), make(source, sequences, micro_batches),
                 make(source, sequences, micro_batches)} {}

  /// Of the next step that will be taken.
  data::Position position() const { return sampler_.position(); }
  void restore(const data::Position& position) { sampler_.restore(position); }

  /// The next step's batches. `more`: another one will follow, and is prepared. Throws InputError on all ranks where
  /// one cannot read its data.
  Step take(bool more) {
    if (!drawn_) draw();
    const Step step{.micro_batches = batches_[current_].micro_batches(), .counts = finished()};
    sampler_.advance();
    drawn_ = false;
    if (more) draw();
    return step;
  }
  /// What signals asked of any rank before the last step began, the same on all ranks. Throws as `take` does.
  const comm::Asked& asked() {
    if (drawn_) finished();
    return exchange_->asked();
  }

 private:
  static Batches<Source> make(const Source& source, std::int64_t sequences, int micro_batches) {
    return {source, sequences, micro_batches, device::host_memory<Device>};
  }

  /// Of the batches that were drawn last.
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
          batches_[current_].draw(sampler_, communicator_->rank(), communicator_->size());
          return batches_[current_].counts();
        },
        signals_->asked());
  }

  C* communicator_;
  data::Sampler sampler_;
  CountExchange<C>* exchange_;
  const comm::CatchSignals* signals_;
  std::optional<BatchCounts> counts_;       ///< of what was drawn, once they are exchanged
  std::array<Batches<Source>, 3> batches_;  ///< the device may still read those of two steps while the third is drawn
  std::size_t current_ = 0;
  bool drawn_ = false;
};

}  // namespace fsdp::train
