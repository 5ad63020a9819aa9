// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device for tests of communicators: each queue is a thread that takes its time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fsdp/device/cpu.hpp>

namespace fsdp::comm {

/// The CPU with operations that are done later. Memory is anybody's; what communicators queue is all there is to do.
struct WorkerDevice : device::Cpu {
  static constexpr std::string_view name = "worker";
  static constexpr bool asynchronous = true;
  class Event;
  class Queue;

  static void move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes);
  static void round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to);
  static void sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum);
};

class WorkerDevice::Event {
 public:
  Event() = default;
  bool happened() const {
    if (state_ == nullptr) return true;
    const std::lock_guard lock(state_->mutex);
    return state_->happened;
  }

 private:
  friend class Queue;
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool happened = false;
  };
  std::shared_ptr<State> state_;
};

/// Ends when all that was asked for is done.
class WorkerDevice::Queue {
 public:
  explicit Queue(std::string_view) : thread_([this] { work(); }) {}
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;
  ~Queue() {
    push(nullptr);
    thread_.join();
  }

  Event record() {
    Event event;
    event.state_ = std::make_shared<Event::State>();
    push([state = event.state_] {
      const std::lock_guard lock(state->mutex);
      state->happened = true;
      state->changed.notify_all();
    });
    return event;
  }
  void wait(const Event& event) {
    if (event.state_ == nullptr) return;
    push([state = event.state_] {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->happened; });
    });
  }
  void synchronize() {
    const Event event = record();
    std::unique_lock lock(event.state_->mutex);
    event.state_->changed.wait(lock, [&] { return event.state_->happened; });
  }
  /// Null ends the thread.
  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_all();
  }

 private:
  void work() {
    std::minstd_rand random(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(this) >> 6));
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      if (!task) return;
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  std::thread thread_;
};

namespace detail {
inline float load(const std::byte* from, DType stored, std::int64_t at) {
  if (stored == DType::bf16) return static_cast<float>(reinterpret_cast<const bf16*>(from)[at]);
  if (stored == DType::f16) return static_cast<float>(reinterpret_cast<const f16*>(from)[at]);
  return reinterpret_cast<const float*>(from)[at];
}
inline float rounded(float value, DType wire) {
  if (wire == DType::bf16) return static_cast<float>(bf16(value));
  if (wire == DType::f16) return static_cast<float>(f16(value));
  return value;
}
}  // namespace detail

inline void WorkerDevice::move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
  queue.push([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}

inline void WorkerDevice::round(Queue& queue, const float* from, DType wire, std::int64_t count, std::byte* to) {
  queue.push([=] {
    for (std::int64_t i = 0; i < count; ++i)
      if (wire == DType::bf16)
        reinterpret_cast<bf16*>(to)[i] = bf16(from[i]);
      else
        reinterpret_cast<f16*>(to)[i] = f16(from[i]);
  });
}

inline void WorkerDevice::sum_in_order(Queue& queue, std::span<const std::byte* const> parts, DType stored, DType wire,
                                       std::int64_t count, Write write, float* sum) {
  queue.push([=, parts = std::vector(parts.begin(), parts.end())] {
    for (std::int64_t i = 0; i < count; ++i) {
      float total = detail::rounded(detail::load(parts[0], stored, i), wire);
      for (std::size_t part = 1; part < parts.size(); ++part)
        total += detail::rounded(detail::load(parts[part], stored, i), wire);
      sum[i] = write == Write::overwrite ? total : sum[i] + total;
    }
  });
}

}  // namespace fsdp::comm
