// SPDX-License-Identifier: Apache-2.0
// The device suite accepts the CPU and the asynchronous device, and finds the flaw of each flawed device.
#include <tessera/fsdp/testing/device.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>

#include <support/sanitizer.hpp>

#include "failures.hpp"

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

inline DeviceFlaw device_flaw = DeviceFlaw::none;  // a run-time value, so that only one device is compiled

struct FlawedDevice : QueuedCpu {
  struct Event : QueuedEvent {
    Event() = default;
    explicit Event(const QueuedEvent& event) : QueuedEvent(event), recorded(true) {}
    bool happened() const {
      if (device_flaw == DeviceFlaw::never_happens) return !recorded;
      return device_flaw == DeviceFlaw::happens_at_once || QueuedEvent::happened();
    }
    bool recorded = false;
  };
  struct Queue : QueuedCpu::Queue {
    explicit Queue(std::string_view name)
        : QueuedCpu::Queue(name),
          slow(device_flaw == DeviceFlaw::happens_at_once ||
               (device_flaw == DeviceFlaw::waits_for_nothing && name == "first")) {}
    Event record() { return Event(QueuedCpu::Queue::record()); }
    void wait(const Event& event) {
      if (device_flaw != DeviceFlaw::waits_for_nothing) QueuedCpu::Queue::wait(event);
    }
    bool slow;  ///< slow, so that work that does not wait for this queue runs too early
  };
  using Arena = device::Arena<FlawedDevice>;

  static std::int64_t extra() { return device_flaw == DeviceFlaw::gives_odd_addresses ? 8 : 0; }
  static std::byte* allocate(std::int64_t bytes) {
    std::byte* const data = QueuedCpu::allocate(bytes + extra());
    if (device_flaw == DeviceFlaw::gives_used_memory) std::fill_n(data, bytes, std::byte{1});
    return data + extra();
  }
  static void deallocate(std::byte* data, std::int64_t bytes) {
    QueuedCpu::deallocate(data - extra(), bytes + extra());
  }

  static void move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (queue.slow) queue.submit("pause", {}, [](auto&) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
    QueuedCpu::move(queue, from, to, device_flaw == DeviceFlaw::moves_too_little && bytes > 1 ? bytes - 1 : bytes);
  }
  static Graph capture(Queue& queue, const std::function<void()>& work) {
    if (device_flaw == DeviceFlaw::captures_and_runs) work();
    return QueuedCpu::capture(queue, work);
  }
  static void round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
    if (device_flaw != DeviceFlaw::rounds_down) return QueuedCpu::round(queue, from, wire, count, to);
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
    if (device_flaw == DeviceFlaw::sums_backwards) std::ranges::reverse(list);
    QueuedCpu::sum_in_order(queue, list, stored, wire, count, write, sum);
  }
};

namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(OnTheHost, DeviceSuite, device::Cpu);
INSTANTIATE_TYPED_TEST_SUITE_P(OnQueues, DeviceSuite, QueuedCpu);

using Flaw = DeviceFlaw;

/// The failure messages of a check of the device with this flaw; unordered accesses are discarded.
std::vector<std::string> said(Flaw flaw, void (*check)()) {
  const auto messages = failures_with(device_flaw, flaw, check);
  QueuedCpu::take_races();
  return messages;
}

TEST(DeviceKit, AcceptsCorrectDevices) {
  check_device_events<FlawedDevice>();
  check_device_order<FlawedDevice>();
  EXPECT_EQ(QueuedCpu::take_races(), std::vector<std::string>{});
}

TEST(DeviceKit, FindsUnalignedOrNonZeroMemory) {
  expect_sentence(said(Flaw::gives_odd_addresses, check_device_memory<FlawedDevice>), "at a multiple of 64 bytes",
                  "1 bytes", "an address 8 bytes beyond");
  expect_sentence(said(Flaw::gives_used_memory, check_device_memory<FlawedDevice>), "gives zeroed memory", "1 bytes",
                  "byte 0 is 1");
}

TEST(DeviceKit, FindsCopiesOfTheWrongLength) {
  expect_sentence(said(Flaw::moves_too_little, check_device_moves<FlawedDevice>), "as many bytes as it is told",
                  "3 bytes, 0 bytes behind the start", "the bytes on the device: element 2 is 0 instead of 15");
}

TEST(DeviceKit, FindsEventsThatCompleteTooEarly) {
  if (test::thread_sanitizer) GTEST_SKIP() << "it finds the race itself";
  expect_sentence(said(Flaw::happens_at_once, [] { check_device_events<FlawedDevice>(); }), "not before", "of 20",
                  "what was copied to the host before the event: element");
}

TEST(DeviceKit, FindsQueuesThatDoNotWait) {
  if (test::thread_sanitizer) GTEST_SKIP() << "it finds the race itself";
  expect_sentence(said(Flaw::waits_for_nothing, check_device_order<FlawedDevice>), "wait(event) holds back",
                  "of 20, two queues", "what the second read: element");
}

TEST(DeviceKit, FindsEventsThatNeverComplete) {
  const auto check = [] { check_device_events<FlawedDevice>(std::chrono::milliseconds(50)); };
  expect_sentence(said(Flaw::never_happens, check), "it happens by itself", "round 1 of 20",
                  "it has not happened after 0.05 s");
}

TEST(DeviceKit, FindsWorkThatRunsDuringCapture) {
  expect_sentence(said(Flaw::captures_and_runs, check_device_captures<FlawedDevice>), "instead of doing it",
                  "before the first launch", "what it writes: element 0 is");
}

TEST(DeviceKit, FindsDifferentRoundingAndSummationOrders) {
  expect_sentence(said(Flaw::rounds_down, check_device_sums<FlawedDevice>), "to the nearest bf16", "elements",
                  "the result: element");
  expect_sentence(said(Flaw::sums_backwards, check_device_sums<FlawedDevice>), "adds them in their order", "5 parts of",
                  "the sum: element");
}

}  // namespace
}  // namespace fsdp::testing
