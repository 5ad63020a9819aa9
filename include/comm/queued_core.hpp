// SPDX-License-Identifier: Apache-2.0
/// @file
/// Queues of asynchronous devices: a type-erased queue, so that backend cores compile once for all devices, and the
/// typed wrapper of a core whose collectives run on such a queue. Self, Threads, Nccl and Mpi use it on an
/// asynchronous device.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <tessera/comm/backend.hpp>
#include <tessera/comm/transfer.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/host_memory.hpp>

namespace fsdp::comm {

/// A type-erased device event. A null event counts as already happened.
using AnyEvent = std::shared_ptr<const void>;

/// One queue of a device. It runs its work in the order enqueued, asynchronously to the host. A default-constructed
/// AnyQueue converts to false and means "no queue".
class AnyQueue {
 public:
  /// The functions of a queue of a device; `queue` is a Device::Queue.
  struct Calls {
    AnyEvent (*record)(void* queue);
    void (*wait)(void* queue, const AnyEvent& event);
    bool (*happened)(const AnyEvent& event);
    void (*synchronize)(void* queue);
    void (*move)(void* queue, const std::byte* from, std::byte* to, std::int64_t bytes);
    void (*round)(void* queue, const float* from, DType wire, std::int64_t count, std::byte* to);
    void (*sum)(void* queue, std::span<const std::byte* const> parts, DType stored, DType wire, std::int64_t count,
                Write write, float* to);
    std::shared_ptr<std::byte> (*allocate)(std::int64_t bytes);
    std::shared_ptr<std::byte> (*allocate_on_host)(std::int64_t bytes);
  };

  AnyQueue() = default;
  AnyQueue(std::shared_ptr<void> queue, const Calls& calls, void* native)
      : queue_(std::move(queue)), calls_(&calls), native_(native) {}
  explicit operator bool() const { return queue_ != nullptr; }

  AnyEvent record() const { return calls_->record(queue_.get()); }
  /// Makes the queue wait for the event, without blocking the host.
  void wait(const AnyEvent& event) const {
    if (event != nullptr) calls_->wait(queue_.get(), event);
  }
  bool happened(const AnyEvent& event) const { return calls_->happened(event); }
  /// Blocks the host, without a deadline.
  void synchronize() const { calls_->synchronize(queue_.get()); }
  void move(const std::byte* from, std::byte* to, std::int64_t bytes) const {
    if (bytes > 0 && from != to) calls_->move(queue_.get(), from, to, bytes);
  }
  void round(const float* from, DType wire, std::int64_t count, std::byte* to) const {
    if (count > 0) calls_->round(queue_.get(), from, wire, count, to);
  }
  /// Enqueues sum_in_order of tessera/comm/transfer.hpp. All contributions must have the same stored type.
  void sum(std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write, float* to) const;
  /// Allocates zeroed device memory; not ordered with the queue.
  std::shared_ptr<std::byte> allocate(std::int64_t bytes) const { return calls_->allocate(bytes); }
  /// Allocates zeroed host memory that `move` copies asynchronously (pinned if the device needs it). Copying other host
  /// memory may block the host until the queue reaches the copy, and no deadline applies to that.
  std::shared_ptr<std::byte> allocate_on_host(std::int64_t bytes) const { return calls_->allocate_on_host(bytes); }
  /// Returns the handle that the device's libraries take, such as a cudaStream_t; the queue's address if the device has
  /// none.
  void* native() const { return native_; }

 private:
  std::shared_ptr<void> queue_;
  const Calls* calls_ = nullptr;
  void* native_ = nullptr;
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

/// Implements AnyQueue::Calls for a device.
template <class Device>
struct QueueOf {
  using Queue = typename Device::Queue;
  static Queue& of(void* queue) { return *static_cast<Queue*>(queue); }

  static AnyEvent record(void* queue) { return any_event<Device>(of(queue).record()); }
  static void wait(void* queue, const AnyEvent& event) { of(queue).wait(event_of<Device>(event)); }
  static bool happened(const AnyEvent& event) { return event_of<Device>(event).happened(); }
  static void synchronize(void* queue) { of(queue).synchronize(); }
  static void move(void* queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
    Device::move(of(queue), from, to, bytes);
  }
  static void round(void* queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
    Device::round(of(queue), from, wire, count, to);
  }
  static void sum(void* queue, std::span<const std::byte* const> parts, DType stored, DType wire, std::int64_t count,
                  Write write, float* to) {
    Device::sum_in_order(of(queue), parts, stored, wire, count, write, to);
  }
  static std::shared_ptr<std::byte> allocate(std::int64_t bytes) {
    return {Device::allocate(bytes), [bytes](std::byte* data) { Device::deallocate(data, bytes); }};
  }
  static constexpr AnyQueue::Calls calls = {.record = record,
                                            .wait = wait,
                                            .happened = happened,
                                            .synchronize = synchronize,
                                            .move = move,
                                            .round = round,
                                            .sum = sum,
                                            .allocate = allocate,
                                            .allocate_on_host = device::host_memory<Device>};
};

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
  return {std::move(queue), QueueOf<Device>::calls, native};
}

/// Blocks the host until `event` has happened. Throws CollectiveError at the device deadline.
void await_event(const AnyQueue& queue, const AnyEvent& event, const Options& options);

/// A `Rank` is a core as tessera/comm/backend.hpp describes it, compiled once, with `move_with(queue)`, `after`, `done`
/// and `wait_for` in terms of AnyQueue and AnyEvent. For tensors, the host waits for a device only in `wait` and
/// `wait_for`; StagedMpiRank also waits in `start`.
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
