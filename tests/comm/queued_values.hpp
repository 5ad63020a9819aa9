// SPDX-License-Identifier: Apache-2.0
/// @file
/// Conformance checks on an asynchronous device: values in memory whose accesses are checked, and queued work on them.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>

#include <tessera/fsdp/testing/queued/queued_cpu.hpp>
#include <tessera/fsdp/testing/values.hpp>

namespace fsdp::comm {

using namespace testing;

using QueuedDevice = testing::QueuedCpu;
using QueuedQueue = QueuedDevice::Queue;

/// Allocates the values of this thread in device memory.
class InDeviceMemory {
 public:
  InDeviceMemory() {
    ValueMemory::shared = [](std::int64_t bytes) {
      return std::shared_ptr<std::byte>(QueuedDevice::allocate(bytes),
                                        [bytes](std::byte* data) { QueuedDevice::deallocate(data, bytes); });
    };
  }
  InDeviceMemory(const InDeviceMemory&) = delete;
  InDeviceMemory& operator=(const InDeviceMemory&) = delete;
  ~InDeviceMemory() { ValueMemory::shared = nullptr; }
};

/// Checks that the accesses of all queues were ordered.
class Ordered : public ::testing::Test {
 protected:
  void SetUp() override { QueuedDevice::take_races(); }
  void TearDown() override { EXPECT_EQ(QueuedDevice::take_races(), std::vector<std::string>{}); }
};

/// Enqueues a pause, then a write of `value` to all elements.
inline void write_later(QueuedQueue& queue, Floats& values, float value, std::chrono::milliseconds pause) {
  const std::array accesses{
      testing::Access{values.data(), static_cast<std::int64_t>(values.size() * sizeof(float)), true}};
  queue.submit("write", accesses, [to = values.data(), size = values.size(), value, pause](auto&) {
    std::this_thread::sleep_for(pause);
    std::fill_n(to, size, value);
  });
}

inline void copy(QueuedQueue& queue, const Floats& from, Floats& to) {
  QueuedDevice::move(queue, reinterpret_cast<const std::byte*>(from.data()), reinterpret_cast<std::byte*>(to.data()),
                     static_cast<std::int64_t>(from.size() * sizeof(float)));
}

/// Expects that rank r's part of the gathered values is r + first.
inline void expect_ranks_values(const Floats& values, std::size_t each, int first) {
  for (const auto& [rank, part] : ranges::views::enumerate(ranges::views::chunk(values, each)))
    for (const float value : part) ASSERT_EQ(value, static_cast<float>(static_cast<int>(rank) + first));
}

/// Blocks the queue until `released` is set.
inline void hold(QueuedQueue& queue, const std::atomic<bool>& released) {
  queue.submit("hold", {}, [&released](auto&) {
    while (!released) std::this_thread::sleep_for(std::chrono::microseconds(100));
  });
}

}  // namespace fsdp::comm
