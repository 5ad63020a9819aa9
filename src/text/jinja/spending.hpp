// SPDX-License-Identifier: Apache-2.0
/// @file
/// Accounting for a running template: the steps of its budget, and the memory of its live values.
///
/// Values are built, compared and printed by many functions. To avoid passing a budget through all of them, the budget
/// is thread-local while a template runs.
#pragma once

#include <cstddef>
#include <utility>

#include "../budget.hpp"

namespace fsdp::text::jinja {

/// While it exists, the values of this thread spend from its budget. They must not outlive it.
class Spending {
 public:
  Spending(Budget& steps, std::size_t most_bytes)
      : steps_(steps), most_bytes_(most_bytes), outer_(std::exchange(current, this)) {}
  ~Spending() { current = outer_; }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  friend class Held;
  friend void spend(std::size_t steps);

  static inline thread_local Spending* current = nullptr;

  Budget& steps_;
  std::size_t most_bytes_, bytes_ = 0;
  Spending* outer_;
};

/// Spends steps of the template that runs in this thread. Does nothing if none runs.
inline void spend(std::size_t steps) {
  if (Spending::current != nullptr) Spending::current->steps_.spend(steps);
}

/// The memory of a value, counted until its destruction. Spends a step for every 16 bytes.
class Held {
 public:
  Held() = default;
  explicit Held(std::size_t bytes) : by_(Spending::current), bytes_(bytes) {
    if (by_ == nullptr) return;
    spend(1 + bytes / 16);
    if (bytes > by_->most_bytes_ - by_->bytes_)
      throw InputError(message("the template's values take more than ", by_->most_bytes_, " bytes"));
    by_->bytes_ += bytes;
  }
  ~Held() {
    if (by_ != nullptr) by_->bytes_ -= bytes_;
  }
  Held(Held&& other) noexcept : by_(std::exchange(other.by_, nullptr)), bytes_(other.bytes_) {}
  Held& operator=(Held&& other) noexcept {
    std::swap(by_, other.by_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

 private:
  Spending* by_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace fsdp::text::jinja
