// SPDX-License-Identifier: Apache-2.0
/// @file
/// A device without storage: the same operations, which only count bytes and FLOPs.
///
/// A model on Meta with comm::Simulated is the dry run. Scratch sizes are asked of the device that it stands for (the CPU),
/// through the same library descriptors, so that the planned peak is exact. Tensors of Meta must never be dereferenced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>

namespace fsdp::device {

struct Meta {
  static constexpr std::string_view name = "meta";
  using Arena = device::Arena<Meta>;
  class Stream;

  /// Addresses that no process maps, so that views can be compared and never read.
  static std::byte* unbacked(std::int64_t offset) {
    return reinterpret_cast<std::byte*>((std::uintptr_t{1} << 62) + static_cast<std::uintptr_t>(offset));
  }
  static std::byte* allocate(std::int64_t) { return unbacked(0); }
  static void deallocate(std::byte*, std::int64_t) {}
  static void poison(std::byte*, std::int64_t) {}
  static void unpoison(std::byte*, std::int64_t) {}
};

}  // namespace fsdp::device
