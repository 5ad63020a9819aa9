// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchange between ranks before each step: the counts of their batches, whether their data are bad (an InputError
/// on one rank is then thrown on all), and what signals have asked of them.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/host_copy.hpp>
#include <tessera/fsdp/module/gathered_numbers.hpp>
#include <tessera/fsdp/nn/batch.hpp>

namespace fsdp {

/// Sums the counts of all ranks' next batches, while the device runs the current step.
template <comm::Communicator C>
class CountExchange {
 public:
  using Device = typename C::Device;

  /// `communicator` and `ledger` must outlive it. All ranks must construct it alike.
  CountExchange(C& communicator, device::Ledger& ledger)
      : communicator_(&communicator),
        numbers_(communicator, ledger, fields),
        own_(fields),
        all_(communicator.size() * fields) {}

  /// Calls `prepare`, which makes this rank's micro-batches and returns their counts, and starts the exchange. If
  /// `prepare` throws InputError, `finish` throws it on all ranks. `asked`: what signals have asked of this rank so
  /// far.
  template <class Prepare>
  void start(const Prepare& prepare, const comm::Asked& asked = {}) {
    complaint_.clear();
    BatchCounts counts;
    bool refuses = false;
    try {
      counts = prepare();
    } catch (const InputError& error) {
      complaint_ = error.what();
      refuses = true;
    }
    const auto own = own_.values();
    own[0] = static_cast<double>(counts.valid_targets);
    own[1] = static_cast<double>(counts.squares);
    own[2] = refuses ? 1 : 0;
    own[3] = asked.stop;
    own[4] = static_cast<double>(asked.saves);
    own_.send(queue_, numbers_.own().data());
    all_.fetch(queue_, numbers_.gather(queue_, {"valid targets"}).data());
  }

  /// Waits for the exchange and returns the sums over ranks. If `prepare` threw InputError on any rank, all ranks throw
  /// that of the first such rank.
  BatchCounts finish() {
    comm::wait_for(*communicator_, all_.copied(), {"valid targets"});
    BatchCounts sums;
    asked_ = {};
    const auto all = all_.values();
    for (int rank = 0; rank < communicator_->size(); ++rank) {
      const std::int64_t row = rank * fields;
      if (all[row + 2] != 0) throw InputError(complaint_of(rank));
      sums.valid_targets += static_cast<std::int64_t>(all[row]);
      sums.squares += static_cast<std::int64_t>(all[row + 1]);
      asked_.stop = std::max(asked_.stop, static_cast<int>(all[row + 3]));
      asked_.saves = std::max(asked_.saves, static_cast<std::int64_t>(all[row + 4]));
    }
    return sums;
  }
  /// Returns what signals had asked of any rank when the last finished exchange started. The same on every rank.
  const comm::Asked& asked() const { return asked_; }

 private:
  static constexpr std::int64_t fields = 5;  ///< both counts; whether the rank refuses its data; what it was asked

  std::string complaint_of(int root) {
    std::array<std::int64_t, 1> length = {std::ssize(complaint_)};
    comm::broadcast(*communicator_, std::as_writable_bytes(std::span(length)), root, {"bad data"});
    complaint_.resize(static_cast<std::size_t>(length[0]));
    comm::broadcast(*communicator_, std::as_writable_bytes(std::span(complaint_)), root, {"bad data"});
    return complaint_;
  }

  C* communicator_;
  typename Device::Queue queue_{"counts"};
  GatheredNumbers<C> numbers_;
  device::HostCopy<Device, double> own_, all_;
  std::string complaint_;
  comm::Asked asked_;
};

}  // namespace fsdp
