// SPDX-License-Identifier: Apache-2.0
/// @file
/// The core of Threads where the device is asynchronous: hosts meet as they do on a CPU, each device queue moves.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include <comm/backend.hpp>
#include <comm/queued_moves.hpp>
#include <comm/threads_rank.hpp>

namespace fsdp::comm {

/// A rank whose tensors are moved on a queue of its own. Ranks share the device, or devices that read each other's
/// memory. Nobody's host waits for a device, except in `wait` and `wait_for`.
template <class Device>
class QueuedThreadsRank {
 public:
  using Event = typename Device::Event;

  explicit QueuedThreadsRank(std::unique_ptr<ThreadsRank> rank) : rank_(std::move(rank)) {
    rank_->move_with(moves_on<Device>(std::make_shared<typename Device::Queue>("threads")));
  }

  int rank() const { return rank_->rank(); }
  int size() const { return rank_->size(); }
  Monitor& monitor() { return rank_->monitor(); }
  const Monitor& monitor() const { return rank_->monitor(); }
  std::int64_t scratch_bytes() const { return rank_->scratch_bytes(); }

  Transfer& prepare() { return rank_->prepare(); }
  Ticket start() { return rank_->start(); }
  bool test(Ticket ticket) { return rank_->test(ticket) && done(ticket).happened(); }
  void wait(Ticket ticket) { wait_for(done(ticket)); }
  void abandon(Ticket ticket) noexcept { rank_->abandon(ticket); }
  std::unique_ptr<QueuedThreadsRank> split(int color) {
    return std::make_unique<QueuedThreadsRank>(rank_->split(color));
  }

  void after(const Event& event) { rank_->after(any_event<Device>(event)); }
  Event done(Ticket ticket) {
    const AnyEvent event = rank_->done(ticket);
    return event == nullptr ? Event{} : event_of<Device>(event);
  }
  void wait_for(const Event& event) { rank_->wait_for(any_event<Device>(event)); }

 private:
  std::unique_ptr<ThreadsRank> rank_;
};

}  // namespace fsdp::comm
