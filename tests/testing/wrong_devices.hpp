// SPDX-License-Identifier: Apache-2.0
/// @file
/// Flawed versions of the asynchronous device, with one flaw each.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <thread>
#include <vector>

#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

namespace fsdp::testing {

enum class DeviceFlaw {
  none,
  gives_odd_addresses,
  gives_used_memory,
  moves_too_little,   ///< copies omit the last byte
  happens_at_once,    ///< events report completion immediately
  never_happens,      ///< events never report completion
  waits_for_nothing,  ///< queues do not wait for events
  captures_and_runs,  ///< captured work also runs immediately
  sums_backwards,
  rounds_down,
};

template <DeviceFlaw flaw>
struct FlawedDevice : QueuedCpu {
  struct Event : QueuedEvent {
    Event() = default;
    explicit Event(const QueuedEvent& event) : QueuedEvent(event), recorded(true) {}
    bool happened() const {
      if (flaw == DeviceFlaw::never_happens) return !recorded;
      return flaw == DeviceFlaw::happens_at_once || QueuedEvent::happened();
    }
    bool recorded = false;
  };
  struct Queue : QueuedCpu::Queue {
    explicit Queue(std::string_view name)
        : QueuedCpu::Queue(name),
          slow(flaw == DeviceFlaw::happens_at_once || (flaw == DeviceFlaw::waits_for_nothing && name == "first")) {}
    Event record() { return Event(QueuedCpu::Queue::record()); }
    void wait(const Event& event) {
      if (flaw != DeviceFlaw::waits_for_nothing) QueuedCpu::Queue::wait(event);
    }
    bool slow;  ///< slow, so that work that does not wait for this queue runs too early
  };
  using Arena = device::Arena<FlawedDevice>;

  static constexpr std::int64_t extra = flaw == DeviceFlaw::gives_odd_addresses ? 8 : 0;
  static std::byte* allocate(std::int64_t bytes) {
    std::byte* const data = QueuedCpu::allocate(bytes + extra);
    if (flaw == DeviceFlaw::gives_used_memory) std::fill_n(data, bytes, std::byte{1});
    return data + extra;
  }
  static void deallocate(std::byte* data, std::int64_t bytes) { QueuedCpu::deallocate(data - extra, bytes + extra); }

  static void move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (queue.slow) queue.submit("pause", {}, [](auto&) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
    QueuedCpu::move(queue, from, to, flaw == DeviceFlaw::moves_too_little && bytes > 1 ? bytes - 1 : bytes);
  }
  static Graph capture(Queue& queue, const std::function<void()>& work) {
    if (flaw == DeviceFlaw::captures_and_runs) work();
    return QueuedCpu::capture(queue, work);
  }
  static void round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
    if (flaw != DeviceFlaw::rounds_down) return QueuedCpu::round(queue, from, wire, count, to);
    const std::array accesses{Access{from, count * 4, false}, Access{to, count * 2, true}};
    queue.submit("round", accesses, [=](auto&) {
      for (std::int64_t i = 0; i < count; ++i)
        reinterpret_cast<std::uint16_t*>(to)[i] =
            static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(from[i]) >> 16);
    });
  }
  static void sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum) {
    std::vector<const std::byte*> list(parts.begin(), parts.end());
    if (flaw == DeviceFlaw::sums_backwards) std::ranges::reverse(list);
    QueuedCpu::sum_in_order(queue, list, stored, wire, count, write, sum);
  }
};

}  // namespace fsdp::testing
