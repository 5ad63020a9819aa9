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
#include <fsdp/data/sampler.hpp>
#include <fsdp/data/windows.hpp>
#include <fsdp/device/host_copy.hpp>
#include <fsdp/module/count_exchange.hpp>
#include <fsdp/train/batches.hpp>

namespace fsdp::train {

template <comm::Communicator C>
class Feed {
 public:
  using Device = typename C::Device;

  struct Step {
    std::span<const MicroBatch> micro_batches;  ///< this rank's, until two more steps were taken
    BatchCounts counts;                         ///< over all ranks
  };

  /// `exchange` is the feed's alone, and must outlive it.
  Feed(C& communicator, CountExchange<C>& exchange, const data::Windows& windows, data::Sampler sampler,
       std::int64_t sequences, int micro_batches, std::optional<std::int64_t> separator)
      : communicator_(&communicator),
        sampler_(std::move(sampler)),
        exchange_(&exchange),
        batches_{make(windows, sequences, micro_batches, separator), make(windows, sequences, micro_batches, separator),
                 make(windows, sequences, micro_batches, separator)} {}

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
  static Batches make(const data::Windows& windows, std::int64_t sequences, int micro_batches,
                      std::optional<std::int64_t> separator) {
    return {windows, sequences, micro_batches, separator, device::host_memory<Device>};
  }

  void draw() {
    drawn_ = true;
    current_ = (current_ + 1) % batches_.size();
    exchange_->start([&] {
      batches_[current_].draw(sampler_, communicator_->rank(), communicator_->size());
      return counts_of(batches_[current_].micro_batches());
    });
  }

  C* communicator_;
  data::Sampler sampler_;
  CountExchange<C>* exchange_;
  std::array<Batches, 3> batches_;  ///< the device may still read those of two steps while the third is drawn
  std::size_t current_ = 0;
  bool drawn_ = false;
};

}  // namespace fsdp::train
