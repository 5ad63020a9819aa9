// SPDX-License-Identifier: Apache-2.0
// The device suite accepts the CPU and the asynchronous device, and finds the flaw of each flawed device.
#include <tessera/fsdp/testing/device.hpp>

#include <chrono>
#include <string>
#include <vector>

#include <tessera/fsdp/device/cpu.hpp>

#include <support/sanitizer.hpp>

#include "failures.hpp"
#include "wrong_devices.hpp"

namespace fsdp::testing {
namespace {

INSTANTIATE_TYPED_TEST_SUITE_P(OnTheHost, DeviceSuite, device::Cpu);
INSTANTIATE_TYPED_TEST_SUITE_P(OnQueues, DeviceSuite, QueuedCpu);

using Flaw = DeviceFlaw;

/// The failure messages of a check; unordered accesses count as failures.
std::vector<std::string> said(void (*check)()) {
  const auto messages = failures_of(check);
  QueuedCpu::take_races();
  return messages;
}

TEST(DeviceKit, AcceptsCorrectDevices) {
  check_device_events<FlawedDevice<Flaw::none>>();
  check_device_order<FlawedDevice<Flaw::none>>();
  EXPECT_EQ(QueuedCpu::take_races(), std::vector<std::string>{});
}

TEST(DeviceKit, FindsUnalignedOrNonZeroMemory) {
  expect_sentence(said(check_device_memory<FlawedDevice<Flaw::gives_odd_addresses>>), "at a multiple of 64 bytes",
                  "1 bytes", "an address 8 bytes beyond");
  expect_sentence(said(check_device_memory<FlawedDevice<Flaw::gives_used_memory>>), "gives zeroed memory", "1 bytes",
                  "byte 0 is 1");
}

TEST(DeviceKit, FindsCopiesOfTheWrongLength) {
  expect_sentence(said(check_device_moves<FlawedDevice<Flaw::moves_too_little>>), "as many bytes as it is told",
                  "3 bytes, 0 bytes behind the start", "the bytes on the device: element 2 is 0 instead of 15");
}

TEST(DeviceKit, FindsEventsThatCompleteTooEarly) {
  if (test::thread_sanitizer) GTEST_SKIP() << "it finds the race itself";
  expect_sentence(said([] { check_device_events<FlawedDevice<Flaw::happens_at_once>>(); }), "not before", "of 20",
                  "what was copied to the host before the event: element");
}

TEST(DeviceKit, FindsQueuesThatDoNotWait) {
  if (test::thread_sanitizer) GTEST_SKIP() << "it finds the race itself";
  expect_sentence(said(check_device_order<FlawedDevice<Flaw::waits_for_nothing>>), "wait(event) holds back",
                  "of 20, two queues", "what the second read: element");
}

TEST(DeviceKit, FindsEventsThatNeverComplete) {
  const auto deadline = std::chrono::milliseconds(50);
  expect_sentence(failures_of([&] { check_device_events<FlawedDevice<Flaw::never_happens>>(deadline); }),
                  "it happens by itself", "round 1 of 20", "it has not happened after 0.05 s");
}

TEST(DeviceKit, FindsWorkThatRunsDuringCapture) {
  expect_sentence(said(check_device_captures<FlawedDevice<Flaw::captures_and_runs>>), "instead of doing it",
                  "before the first launch", "what it writes: element 0 is");
}

TEST(DeviceKit, FindsDifferentRoundingAndSummationOrders) {
  expect_sentence(said(check_device_sums<FlawedDevice<Flaw::rounds_down>>), "to the nearest bf16", "elements",
                  "the result: element");
  expect_sentence(said(check_device_sums<FlawedDevice<Flaw::sums_backwards>>), "adds them in their order", "5 parts of",
                  "the sum: element");
}

}  // namespace
}  // namespace fsdp::testing
