// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues of asynchronous devices: a type-erased queue, so that backend cores compile once for all devices, and the
/// typed wrapper of a core whose collectives run on such a queue. Self, Threads, Nccl and Mpi use it on an
/// asynchronous device.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/transfer.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/host_memory.hpp>

namespace fsdp::comm {

/// A type-erased device event. A null event counts as already happened.
using AnyEvent = std::shared_ptr<const void>;

/// One queue of a device. It runs its work in the order enqueued, asynchronously to the host. A default-constructed
/// AnyQueue converts to false and means "no queue".
struct AnyQueue {
  std::function<AnyEvent()> record;
  std::function<void(const AnyEvent&)> wait;  ///< makes the queue wait for the event, without blocking the host
  std::function<bool(const AnyEvent&)> happened;
  std::function<void()> synchronize;  ///< blocks the host, without a deadline
  std::function<void(const std::byte* from, std::byte* to, std::int64_t bytes)> move;
  std::function<void(const float* from, DType wire, std::int64_t count, std::byte* to)> round;
  /// Enqueues sum_in_order of tessera/comm/transfer.hpp. All contributions must have the same stored type.
  std::function<void(std::span<const Contribution>, DType wire, std::int64_t count, Write, float* to)> sum;
  /// Allocates zeroed device memory; not ordered with the queue.
  std::function<std::shared_ptr<std::byte>(std::int64_t bytes)> allocate;
  /// Allocates zeroed host memory that `move` copies asynchronously (pinned if the device needs it). Copying other host
  /// memory may block the host until the queue reaches the copy, and no deadline applies to that.
  std::function<std::shared_ptr<std::byte>(std::int64_t bytes)> allocate_on_host;
  /// The handle that the device's libraries take, such as a cudaStream_t; null if the device has none.
  void* native = nullptr;

  explicit operator bool() const { return record != nullptr; }
};

template <class Device>
AnyEvent any_event(const typename Device::Event& event) {
  return std::make_shared<const typename Device::Event>(event);
}
template <class Device>
typename Device::Event event_of(const AnyEvent& event) {
  using Event = typename Device::Event;
  return event == nullptr ? Event{} : *static_cast<const Event*>(event.get());
}

/// Makes a queue of `Device`, with Priority::first if the device supports priorities. `name` labels it in profilers.
template <class Device>
AnyQueue make_queue(std::string_view name) {
  using Queue = typename Device::Queue;
  std::shared_ptr<Queue> queue;
  if constexpr (std::constructible_from<Queue, std::string_view, device::Priority>)
    queue = std::make_shared<Queue>(name, device::Priority::first);
  else
    queue = std::make_shared<Queue>(name);
  void* native = queue.get();
  if constexpr (requires { queue->native(); }) native = queue->native();
  return {
      .record = [queue] { return any_event<Device>(queue->record()); },
      .wait =
          [queue](const AnyEvent& event) {
            if (event != nullptr) queue->wait(event_of<Device>(event));
          },
      .happened = [](const AnyEvent& event) { return event_of<Device>(event).happened(); },
      .synchronize = [queue] { queue->synchronize(); },
      .move =
          [queue](const std::byte* from, std::byte* to, std::int64_t bytes) {
            if (bytes > 0 && from != to) Device::move(*queue, from, to, bytes);
          },
      .round =
          [queue](const float* from, DType wire, std::int64_t count, std::byte* to) {
            if (count > 0) Device::round(*queue, from, wire, count, to);
          },
      .sum =
          [queue](std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write, float* to) {
            if (count == 0) return;
            std::vector<const std::byte*> parts;
            for (const Contribution& contribution : contributions) parts.push_back(contribution.data);
            Device::sum_in_order(*queue, std::span<const std::byte* const>(parts), contributions[0].stored, wire, count,
                                 write, to);
          },
      .allocate =
          [](std::int64_t bytes) {
            return std::shared_ptr<std::byte>(Device::allocate(bytes),
                                              [bytes](std::byte* data) { Device::deallocate(data, bytes); });
          },
      .allocate_on_host = [](std::int64_t bytes) { return device::host_memory<Device>(bytes); },
      .native = native,
  };
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
