// SPDX-License-Identifier: Apache-2.0
/// @file
/// The typed wrapper of a core whose collectives run on their own queue. Self, Threads, Nccl and Mpi use it on an
/// asynchronous device.
///
/// A `Rank` is a core as tessera/comm/backend.hpp describes it, compiled once, with `move_with(queue)`, `after`, `done`
/// and `wait_for` in terms of AnyQueue and AnyEvent. For tensors, the host waits for a device only in `wait` and
/// `wait_for`; StagedMpiRank also waits in `start`.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include <tessera/comm/any_queue.hpp>
#include <tessera/comm/backend.hpp>
#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

/// Blocks the host until `event` has happened. Throws CollectiveError at the device deadline.
inline void await_event(const AnyQueue& queue, const AnyEvent& event, const Options& options) {
  if (const auto waited = poll_in_vain(options.device_deadline, [&] { return queue.happened(event); }))
    throw CollectiveError(missed_device_deadline(*waited, options));
}

template <class RankType, class Device>
class QueuedCore {
 public:
  using Rank = RankType;
  using Event = typename Device::Event;

  explicit QueuedCore(std::unique_ptr<Rank> rank) : rank_(std::move(rank)) {
    rank_->move_with(make_queue<Device>(Rank::queue_name));
    if constexpr (requires { rank_->join_with(AnyQueue{}); }) rank_->join_with(make_queue<Device>("joins"));
  }

  Rank& erased() { return *rank_; }
  int rank() const { return rank_->rank(); }
  int size() const { return rank_->size(); }
  Monitor& monitor() { return rank_->monitor(); }
  const Monitor& monitor() const { return rank_->monitor(); }
  std::int64_t scratch_bytes() const { return rank_->scratch_bytes(); }

  Transfer& prepare() { return rank_->prepare(); }
  Ticket start() { return rank_->start(); }
  bool test(Ticket ticket) { return rank_->test(ticket) && done(ticket).happened(); }
  void progress(Ticket ticket) { rank_->test(ticket); }
  void wait(Ticket ticket) { rank_->wait_for(rank_->done(ticket)); }
  void abandon(Ticket ticket) noexcept { rank_->abandon(ticket); }
  std::unique_ptr<QueuedCore> split(int color) { return std::make_unique<QueuedCore>(rank_->split(color)); }

  void after(const Event& event) { rank_->after(any_event<Device>(event)); }
  Event done(Ticket ticket) { return event_of<Device>(rank_->done(ticket)); }
  void wait_for(const Event& event) { rank_->wait_for(any_event<Device>(event)); }

 private:
  std::unique_ptr<Rank> rank_;
};

/// The core of a backend on `Device`: `Rank` itself, or a QueuedCore of it if the device is asynchronous.
template <class Rank, class Device>
using CoreOf = std::conditional_t<Device::asynchronous, QueuedCore<Rank, Device>, Rank>;

template <class Device, class Rank>
std::unique_ptr<CoreOf<Rank, Device>> core_of(std::unique_ptr<Rank> rank) {
  if constexpr (Device::asynchronous)
    return std::make_unique<QueuedCore<Rank, Device>>(std::move(rank));
  else
    return rank;
}

}  // namespace fsdp::comm
