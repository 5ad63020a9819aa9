// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchange between ranks before each step: the counts of their batches, errors in their data (an InputError on one
/// rank is thrown on all ranks), and the requests that signals made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/module/gathered_numbers.hpp>
#include <tessera/fsdp/nn/batch.hpp>

namespace fsdp {

/// Sums the counts of all ranks' next batches, while the device runs the current step.
template <comm::Communicator C>
class CountExchange {
 public:
  using Device = typename C::Device;

  /// `communicator` and `ledger` must outlive it. All ranks must construct it with equivalent arguments.
  CountExchange(C& communicator, device::Ledger& ledger)
      : communicator_(&communicator),
        numbers_(communicator, ledger, sizeof(Message) / sizeof(double)),
        all_(communicator.size()) {}

  /// Calls `prepare`, which reads this rank's micro-batches and returns their counts, and starts the exchange. If
  /// `prepare` throws InputError, `finish` throws it on all ranks. `asked`: the requests of the signals that this rank
  /// has received so far.
  template <class Prepare>
  void start(const Prepare& prepare, const comm::SignalRequests& asked = {}) {
    BatchCounts counts;
    exception_.clear();
    try {
      counts = prepare();
      require<InputError>(counts.valid_targets >= 0 && counts.squares >= 0,
                          "batch: counts() of a rank's micro-batches ", "give ", counts.valid_targets,
                          " valid targets and ", counts.squares, " as the sum of squares; they are at least 0");
    } catch (const InputError&) {
      exception_ = comm::encoded_exception();
    }
    own_.value() = {.valid_targets = static_cast<double>(counts.valid_targets),
                    .squares = static_cast<double>(counts.squares),
                    .failed = exception_.empty() ? 0.0 : 1.0,
                    .stop = static_cast<double>(asked.stop),
                    .saves = static_cast<double>(asked.saves)};
    own_.send(queue_, reinterpret_cast<Message*>(numbers_.own().data()));
    all_.fetch(queue_, reinterpret_cast<const Message*>(numbers_.gather(queue_, {"valid targets"}).data()));
  }

  /// Waits for the exchange and returns the sums over ranks. If `prepare` threw InputError on any rank, all ranks throw
  /// the error of the lowest such rank.
  BatchCounts finish() {
    comm::wait_for(*communicator_, all_.copied(), {"valid targets"});
    BatchCounts sums;
    asked_ = {};
    for (int rank = 0; rank < communicator_->size(); ++rank) {
      const Message& message = all_.values()[rank];
      if (message.failed != 0) comm::throw_first(comm::gather_texts(*communicator_, exception_, "bad data"));
      sums += {.valid_targets = static_cast<std::int64_t>(message.valid_targets),
               .squares = static_cast<std::int64_t>(message.squares)};
      asked_.stop = std::max(asked_.stop, static_cast<int>(message.stop));
      asked_.saves = std::max(asked_.saves, static_cast<std::int64_t>(message.saves));
    }
    return sums;
  }
  /// Returns the signal requests of all ranks as of the start of the last finished exchange. The same on every rank.
  const comm::SignalRequests& asked() const { return asked_; }

 private:
  /// The message of one rank to all others. All members have one type, so that every backend can gather them.
  struct Message {
    double valid_targets, squares;
    double failed;       ///< 1 if `prepare` threw
    double stop, saves;  ///< requests, see comm::SignalRequests
  };

  C* communicator_;
  typename Device::Queue queue_{"counts"};
  GatheredNumbers<C> numbers_;
  device::HostCopy<Device, Message> own_, all_;
  std::string exception_;  ///< exception that this rank's `prepare` threw, encoded; empty if it threw none
  comm::SignalRequests asked_;
};

}  // namespace fsdp
