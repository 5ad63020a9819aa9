// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device's queue with its types erased: what a core that is compiled once asks of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <comm/transfer.hpp>

namespace fsdp::comm {

/// An event of some device.
using AnyEvent = std::shared_ptr<const void>;

/// One queue of a device. Everything asked for runs in that order, beside the host.
struct QueuedMoves {
  std::function<AnyEvent()> record;
  std::function<void(const AnyEvent&)> wait;  ///< the queue does, not the host
  std::function<bool(const AnyEvent&)> happened;
  std::function<void(std::byte* to, const std::byte* from, std::int64_t bytes)> move;
  /// As sum_in_order of comm/transfer.hpp; all contributions are floats.
  std::function<void(std::span<const Contribution>, DType wire, std::int64_t count, Write, float* to)> sum;
};

template <class Device>
AnyEvent any_event(const typename Device::Event& event) {
  return std::make_shared<const typename Device::Event>(event);
}
template <class Device>
const typename Device::Event& event_of(const AnyEvent& event) {
  return *static_cast<const typename Device::Event*>(event.get());
}

/// What `queue` does; it lives as long as its moves.
template <class Device>
QueuedMoves moves_on(const std::shared_ptr<typename Device::Queue>& queue) {
  return {
      .record = [queue] { return any_event<Device>(queue->record()); },
      .wait = [queue](const AnyEvent& event) { queue->wait(event_of<Device>(event)); },
      .happened = [](const AnyEvent& event) { return event_of<Device>(event).happened(); },
      .move =
          [queue](std::byte* to, const std::byte* from, std::int64_t bytes) {
            if (bytes > 0) Device::move(*queue, from, to, bytes);
          },
      .sum =
          [queue](std::span<const Contribution> contributions, DType wire, std::int64_t count, Write write, float* to) {
            if (count == 0) return;
            std::vector<const std::byte*> parts;
            for (const Contribution& contribution : contributions) parts.push_back(contribution.data);
            Device::sum_in_order(*queue, std::span<const std::byte* const>(parts), DType::f32, wire, count, write, to);
          },
  };
}

}  // namespace fsdp::comm
