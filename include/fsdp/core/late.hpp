// SPDX-License-Identifier: Apache-2.0
/// @file
/// An object that its owner constructs later than itself, or never.
#pragma once

#include <memory>
#include <new>
#include <utility>

namespace fsdp {

/// Contains an object from `emplace` on. Like a std::optional that is neither copied nor moved, of which g++ emits a
/// fifth of the functions for each type.
template <class T>
class Late {
 public:
  Late() {}
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  ~Late() {
    if (exists_) value_.~T();
  }

  /// Constructs the object from the arguments; destroys the object that it contained before.
  template <class... Args>
  T& emplace(Args&&... args) {
    if (std::exchange(exists_, false)) value_.~T();
    ::new (static_cast<void*>(std::addressof(value_))) T(std::forward<Args>(args)...);
    exists_ = true;
    return value_;
  }
  explicit operator bool() const { return exists_; }

  /// Access the object; only after `emplace`.
  /// @{
  T& operator*() { return value_; }
  const T& operator*() const { return value_; }
  T* operator->() { return std::addressof(value_); }
  const T* operator->() const { return std::addressof(value_); }
  /// @}

 private:
  union {
    T value_;
  };
  bool exists_ = false;
};

}  // namespace fsdp
