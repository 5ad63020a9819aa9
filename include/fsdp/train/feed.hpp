// SPDX-License-Identifier: Apache-2.0
/// @file
/// Batches of the steps to come: drawn and counted one step ahead, while the device is busy.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <comm/communicator.hpp>
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

  /// `exchange` is the feed's alone; it and the source must outlive it.
  Feed(C& communicator, CountExchange<C>& exchange, const Source& source, data::Sampler sampler, std::int64_t sequences,
       int micro_batches)
      : communicator_(&communicator),
        sampler_(std::move(sampler)),
        exchange_(&exchange),
        batches_{make(source, sequences, micro_batches), make(source, sequences, micro_batches),
                 make(source, sequences, micro_batches)} {}

  /// Of the next step that will be taken.
  data::Position position() const { return sampler_.position(); }
  void restore(const data::Position& position) { sampler_.restore(position); }

  /// The next step's batches. `more`: another one will follow, and is prepared. Throws InputError on all ranks where
  /// one cannot read its data.
  Step take(bool more) {
    if (!drawn_) draw();
    const Step step{.micro_batches = batches_[current_].micro_batches(), .counts = exchange_->finish()};
    sampler_.advance();
    drawn_ = false;
    if (more) draw();
    return step;
  }

 private:
  static Batches<Source> make(const Source& source, std::int64_t sequences, int micro_batches) {
    return {source, sequences, micro_batches, device::host_memory<Device>};
  }

  void draw() {
    drawn_ = true;
    current_ = (current_ + 1) % batches_.size();
    exchange_->start([&] {
      batches_[current_].draw(sampler_, communicator_->rank(), communicator_->size());
      return batches_[current_].counts();
    });
  }

  C* communicator_;
  data::Sampler sampler_;
  CountExchange<C>* exchange_;
  std::array<Batches<Source>, 3> batches_;  ///< the device may still read those of two steps while the third is drawn
  std::size_t current_ = 0;
  bool drawn_ = false;
};

}  // namespace fsdp::train
