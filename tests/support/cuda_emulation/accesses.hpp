// SPDX-License-Identifier: Apache-2.0
/// @file
/// Memory that kernels may access: device memory, shared memory, constants. If accesses are checked (controls.hpp), an
/// access outside of these ends the launch with an error, and so does a race (races.hpp).
///
/// Kernels are compiled with -fsanitize=thread. Its calls before every load and store are implemented here instead of
/// by ThreadSanitizer's library. Warp instructions report their accesses themselves.
#pragma once

#include <cstddef>
#include <mutex>

namespace fsdp::device::cuda::emulation {

/// During its lifetime, the calling thread runs a kernel, and no memory is added or removed.
class Checks {
 public:
  Checks();
  Checks(const Checks&) = delete;
  Checks& operator=(const Checks&) = delete;
  ~Checks();

 private:
  std::unique_lock<std::mutex> lock_;
};

/// Adds device memory, which kernels may read and write.
void add_memory(const std::byte* data, std::size_t bytes);
void remove_memory(const std::byte* data);
/// Forbids accesses to a part of it, aligned to 64 bytes, such as the unused part of an arena.
void forbid(const std::byte* data, std::size_t bytes);
void permit(const std::byte* data, std::size_t bytes);

/// An instruction of the current thread reads or writes memory.
void reads(const void* data, std::size_t bytes);
void writes(const void* data, std::size_t bytes);
/// A copy begins; until it ends, no thread may access its target.
void copy_begins(const void* to, std::size_t bytes);
void copy_ends(const void* to, std::size_t bytes);

}  // namespace fsdp::device::cuda::emulation
