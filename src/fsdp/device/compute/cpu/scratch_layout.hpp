// SPDX-License-Identifier: Apache-2.0
/// @file
/// The layout of one thread's scratch.
#pragma once

#include <cstdint>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/device/memory.hpp>

namespace fsdp::device::cpu {

/// Assigns byte offsets in one thread's scratch, each a multiple of `alignment`.
class ScratchLayout {
 public:
  std::int64_t place(std::int64_t count, std::int64_t element_bytes) {
    const std::int64_t offset = bytes_;
    bytes_ += round_up(count * element_bytes, alignment);
    return offset;
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  std::int64_t bytes_ = 0;
};

}  // namespace fsdp::device::cpu
