// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a device: memory, copies, the order of queues, and the operations that communicators enqueue. Test its
/// operations with cases like the cases of OperationSuite.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, DeviceSuite, mine::Accelerator);
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/report.hpp>
#include <tessera/fsdp/testing/suite.hpp>
#include <tessera/fsdp/testing/values.hpp>

namespace fsdp::testing {
namespace detail {

/// A number of elements large enough that a copy takes noticeable time.
inline constexpr std::int64_t many_floats = 1 << 18;

/// Returns elements that depend on `seed`. Their magnitudes differ, so that the order of summation affects the result.
inline std::vector<float> some_floats(std::uint64_t seed, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>(
        number_at(seed, i) * static_cast<double>(1 << (static_cast<std::uint64_t>(i) * 7 + seed) % 12));
  return values;
}

/// Owns an array in a device's memory.
template <class D, class T>
class OnDevice {
 public:
  explicit OnDevice(std::int64_t count)
      : count_(count),
        block_(*ledger_, device::MemoryKind::activations, count * static_cast<std::int64_t>(sizeof(T))) {}
  OnDevice(typename D::Queue& queue, const std::vector<T>& values) : OnDevice(std::ssize(values)) {
    set(queue, values);
    queue.synchronize();
  }

  T* data() const { return reinterpret_cast<T*>(block_.data()); }
  void set(typename D::Queue& queue, const std::vector<T>& values) {
    device::move<D>(queue, values.data(), data(), count_);
  }
  std::vector<T> values(typename D::Queue& queue) const {
    std::vector<T> found(static_cast<std::size_t>(count_));
    device::move<D>(queue, static_cast<const T*>(data()), found.data(), count_);
    queue.synchronize();
    return found;
  }

 private:
  std::unique_ptr<device::Ledger> ledger_ = std::make_unique<device::Ledger>();
  std::int64_t count_;
  device::Block<D> block_;
};

}  // namespace detail

/// Checks that allocated memory is zeroed and aligned, even if it is reused.
template <class D>
void check_device_memory() {
  typename D::Queue queue("memory");
  constexpr std::string_view asked = "allocate(bytes) gives zeroed memory at a multiple of 64 bytes";
  for (const std::int64_t count : {1, 3, 64, 5001, 1 << 20})
    for (int again = 0; again < 2; ++again) {  // freed memory may be reused
      const std::string where = message(count, " bytes");
      const detail::OnDevice<D, std::uint8_t> memory(count);
      if (const auto over = reinterpret_cast<std::uintptr_t>(memory.data()) % device::alignment; over != 0)
        return void(fail(asked, where, message("an address ", over, " bytes beyond a multiple of 64")));
      const auto values = memory.values(queue);
      const auto at = std::ranges::find_if(values, [](std::uint8_t byte) { return byte != 0; });
      if (at != values.end())
        return void(fail(asked, where, message("byte ", at - values.begin(), " is ", in_words(*at))));
      const std::vector<std::uint8_t> ones(static_cast<std::size_t>(count), 0xff);
      const detail::OnDevice<D, std::uint8_t> used(queue, ones);
    }
}

/// Checks copies of any length between any addresses: from host to device, from device to host, and within the device.
template <class D>
void check_device_moves() {
  typename D::Queue queue("moves");
  constexpr std::string_view asked =
      "move copies as many bytes as it is told, from the host, within the device and to the host, and no other";
  for (const std::int64_t count : {0, 1, 3, 17, 4095, 100003})
    for (const std::int64_t offset : {0, 5}) {
      const std::int64_t all = count + 64;
      std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
      for (std::int64_t i = 0; i < count; ++i)
        bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(i * 7 + 1);
      const detail::OnDevice<D, std::uint8_t> first(all), second(all);
      device::move<D>(queue, bytes.data(), first.data() + offset, count);
      device::move<D>(queue, static_cast<const std::uint8_t*>(first.data() + offset), second.data() + offset, count);
      std::vector<std::uint8_t> expected(static_cast<std::size_t>(all));
      std::ranges::copy(bytes, expected.begin() + offset);
      const std::string where = message(count, " bytes, ", offset, " bytes behind the start");
      if (!expect_values(asked, where, "the bytes on the device", first.values(queue), expected) ||
          !expect_values(asked, where, "the bytes that were copied within it", second.values(queue), expected))
        return;
    }
}

/// Checks an arena, which returns the same block repeatedly.
template <class D>
void check_device_arena() {
  typename D::Queue queue("arena");
  device::Ledger ledger;
  typename D::Arena arena(ledger, 4096);
  constexpr std::string_view asked = "memory that an arena gave, and got back, can be used again";
  for (int round = 0; round < 3; ++round) {
    typename D::Arena::Frame frame(arena);
    const Tensor<float> first = frame.template allocate<float>({100}), second = frame.template allocate<float>({7});
    const auto a = detail::some_floats(static_cast<std::uint64_t>(round), 100);
    const auto b = detail::some_floats(static_cast<std::uint64_t>(round + 9), 7);
    std::vector<float> found_a(100), found_b(7);
    device::move<D>(queue, a.data(), first.data(), 100);
    device::move<D>(queue, b.data(), second.data(), 7);
    device::move<D>(queue, static_cast<const float*>(first.data()), found_a.data(), 100);
    device::move<D>(queue, static_cast<const float*>(second.data()), found_b.data(), 7);
    queue.synchronize();
    const std::string where = message("use ", round + 1);
    if (!expect_values(asked, where, "the first tensor", found_a, a) ||
        !expect_values(asked, where, "the second tensor", found_b, b))
      return;
  }
}

/// Checks that an event completes when the work of its queue is done, not earlier, and within `patience`.
template <class D>
void check_device_events(std::chrono::milliseconds patience = std::chrono::seconds(10)) {
  using detail::many_floats;
  typename D::Queue queue("events");
  constexpr std::string_view asked =
      "an event has happened when all is done that was enqueued before it was recorded, not before; it happens by "
      "itself, and its copies with it";
  if (!typename D::Event{}.happened())
    return void(fail("an event that was never recorded has happened", "Event{}", "happened() is false"));
  const std::vector<float> both[] = {detail::some_floats(1, many_floats), detail::some_floats(2, many_floats)};
  for (int round = 0; round < 20; ++round) {
    const std::string where = message("round ", round + 1, " of 20");
    const std::vector<float>& values = both[round % 2];
    const detail::OnDevice<D, float> memory(queue, values);
    std::vector<float> found(values.size());
    device::move<D>(queue, static_cast<const float*>(memory.data()), found.data(), many_floats);
    const auto event = queue.record();
    const auto copy = event;
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!copy.happened()) {
      if (std::chrono::steady_clock::now() > deadline)
        return void(fail(asked, where,
                         message("it has not happened after ", static_cast<double>(patience.count()) / 1000, " s")));
      std::this_thread::yield();
    }
    if (!expect_values(asked, where, "what was copied to the host before the event", found, values)) {
      queue.synchronize();
      return;
    }
    if (!event.happened()) return void(fail(asked, where, "a copy of the event has happened, and the event has not"));
  }
}

/// Checks that queues wait for events, and that the host waits for queues.
template <class D>
void check_device_order() {
  using detail::many_floats;
  constexpr std::string_view asked =
      "wait(event) holds back what is enqueued on a queue later until the event has happened; synchronize() waits for "
      "all that was enqueued";
  typename D::Queue first("first"), second("second");
  const detail::OnDevice<D, float> here(many_floats), there(many_floats);
  const std::vector<float> both[] = {detail::some_floats(1, many_floats), detail::some_floats(2, many_floats)};
  for (int round = 0; round < 20; ++round) {
    const std::vector<float>& values = both[round % 2];
    std::vector<float> found(values.size());
    device::move<D>(first, values.data(), here.data(), many_floats);
    second.wait(first.record());
    device::move<D>(second, static_cast<const float*>(here.data()), there.data(), many_floats);
    first.wait(second.record());  // `first` overwrites `there` in the next round
    device::move<D>(second, static_cast<const float*>(there.data()), found.data(), many_floats);
    second.synchronize();
    const bool good =
        expect_values(asked, message("round ", round + 1, " of 20, two queues"), "what the second read", found, values);
    first.synchronize();
    if (!good) return;
  }
}

/// Checks capture and replay of a graph, if the device has graphs.
template <class D>
void check_device_captures() {
  if constexpr (device::Captures<D>) {
    constexpr std::string_view asked =
        "capture keeps the work that it is given instead of doing it; launch does it, as often as it is called";
    typename D::Queue queue("graphs");
    detail::OnDevice<D, float> here(queue, detail::some_floats(1, 100)), there(100);
    const auto graph =
        D::capture(queue, [&] { device::move<D>(queue, static_cast<const float*>(here.data()), there.data(), 100); });
    if (!expect_values(asked, "before the first launch", "what it writes", there.values(queue),
                       std::vector<float>(100)))
      return;
    for (const std::uint64_t seed : {2, 3}) {
      const auto values = detail::some_floats(seed, 100);
      here.set(queue, values);
      graph.launch(queue);
      if (!expect_values(asked, message("launch ", seed - 1), "what it writes", there.values(queue), values)) return;
    }
  }
}

/// Checks the sums that communicators enqueue on an asynchronous device.
template <class D>
void check_device_sums() {
  if constexpr (D::asynchronous) {
    typename D::Queue queue("sums");
    for (const std::int64_t count : {1, 7, 4099}) {
      const auto values = detail::some_floats(1, count);
      std::vector<bf16> rounded;
      for (const float value : values) rounded.push_back(bf16(value));
      const detail::OnDevice<D, float> from(queue, values);
      const detail::OnDevice<D, bf16> to(count);
      D::round(queue, from.data(), DType::bf16, count, reinterpret_cast<std::byte*>(to.data()));
      if (!expect_values("round rounds floats to the nearest bf16, ties to even", message(count, " elements"),
                         "the result", to.values(queue), rounded))
        return;
      for (const int parts : {1, 2, 5})
        for (const DType wire : {DType::f32, DType::bf16})
          for (const Write write : {Write::overwrite, Write::accumulate}) {
            std::vector<detail::OnDevice<D, float>> held;
            std::vector<const std::byte*> pointers;
            const auto before = detail::some_floats(99, count);
            std::vector<float> expected = write == Write::accumulate ? before : std::vector<float>();
            for (int part = 0; part < parts; ++part) {
              const Floats one = contributions(part, static_cast<std::size_t>(count));
              if (expected.empty())
                expected.assign(static_cast<std::size_t>(count), -0.0f);  // adding -0 changes no value
              for (std::size_t i = 0; i < expected.size(); ++i)
                expected[i] += wire == DType::bf16 ? static_cast<float>(bf16(one[i])) : one[i];
              held.emplace_back(queue, std::vector<float>(one.begin(), one.end()));
              pointers.push_back(reinterpret_cast<const std::byte*>(held.back().data()));
            }
            const detail::OnDevice<D, float> apart(queue, before);
            const std::string where =
                message(parts, parts == 1 ? " part" : " parts", " of ", count, " elements, wire ", name_of(wire),
                        write == Write::accumulate ? ", added to what is there" : "");
            constexpr std::string_view asked =
                "sum_in_order rounds every part to the wire's type and adds them in their order, in float: the same "
                "bits as over every communicator";
            const auto sum = [&](float* to) {
              D::sum_in_order(queue, std::span<const std::byte* const>(pointers), DType::f32, wire, count, write, to);
            };
            sum(apart.data());
            if (!expect_values(asked, where, "the sum", apart.values(queue), expected)) return;
            if (write == Write::accumulate) continue;
            sum(held.back().data());
            if (!expect_values(asked, where, "the sum over its last part", held.back().values(queue), expected)) return;
          }
    }
  }
}

/// The suite. Its parameter is a device that computes; a device that only counts (a dry run) has no memory to check.
template <class D>
class DeviceSuite : public ::testing::Test {
  static_assert(device::check_device<D>());
  static_assert(!D::counts_only, "fsdp: this device only counts, and the suite looks at memory");
};

FSDP_SUITE(DeviceSuite, (GivesZeroedMemory, check_device_memory<TypeParam>()),
           (MovesBytes, check_device_moves<TypeParam>()), (LendsAnArena, check_device_arena<TypeParam>()),
           (SaysWhatHasHappened, check_device_events<TypeParam>()), (OrdersQueues, check_device_order<TypeParam>()),
           (CapturesGraphs, check_device_captures<TypeParam>()),
           (SumsForCommunicators, check_device_sums<TypeParam>()));

}  // namespace fsdp::testing
