// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that groups take turns in.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp {

/// One slot for gathered weights or for a unit's gradients; nullptr where a group's buffer at rest serves.
template <class T, class Device>
struct Slot {
  T* data = nullptr;
  std::int64_t size = 0;             ///< elements
  typename Device::Event free = {};  ///< when its last user was done with it

  /// Makes the slot usable, or unusable (see Device::poison) until it is opened again.
  T* open() const {
    if (data != nullptr) Device::unpoison(reinterpret_cast<std::byte*>(data), bytes());
    return data;
  }
  void close() const {
    if (data != nullptr) Device::poison(reinterpret_cast<std::byte*>(data), bytes());
  }
  std::int64_t bytes() const { return size * static_cast<std::int64_t>(sizeof(T)); }
};

}  // namespace fsdp
