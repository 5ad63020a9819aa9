// SPDX-License-Identifier: Apache-2.0
/// @file
/// Slots: memory that groups use in turn.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fsdp {

/// A slot for gathered weights or for a unit's gradients. `data` is null if the group is used in its buffer at rest.
template <class T, class Device>
struct Slot {
  T* data = nullptr;
  std::int64_t size = 0;             ///< elements
  typename Device::Event free = {};  ///< when its last user has finished with it

  /// `open` makes the slot usable and returns its memory; `close` poisons it until the next `open` (see
  /// Device::poison).
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
