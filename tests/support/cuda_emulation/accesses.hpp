// SPDX-License-Identifier: Apache-2.0
/// @file
/// What kernels touch: memory of the device, shared memory, constants. Where accesses are checked (controls.hpp), one
/// outside of these ends the launch with an error, and so does a race (races.hpp).
///
/// Kernels are compiled with -fsanitize=thread, whose calls before every load and store come here instead of to
/// ThreadSanitizer's library; what kernels do by instructions of a warp, those report.
#pragma once

#include <cstddef>
#include <mutex>

namespace fsdp::device::cuda::emulation {

/// While one lives, the calling thread runs a kernel, and memory neither comes nor goes.
class Checks {
 public:
  Checks();
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;
  ~Checks();

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Memory of the device, which kernels may read and write.
void add_memory(const std::byte* data, std::size_t bytes);
void remove_memory(const std::byte* data);
/// Part of it, from a multiple of 64 bytes on, that nothing lies in for now, as in an arena.
void forbid(const std::byte* data, std::size_t bytes);
void permit(const std::byte* data, std::size_t bytes);

/// An instruction of the current thread reads or writes.
void reads(const void* data, std::size_t bytes);
void writes(const void* data, std::size_t bytes);
/// A copy begins, until whose end nobody may touch what it writes.
void copy_begins(const void* to, std::size_t bytes);
void copy_ends(const void* to, std::size_t bytes);

}  // namespace fsdp::device::cuda::emulation
