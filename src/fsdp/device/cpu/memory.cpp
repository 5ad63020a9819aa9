// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU's memory: anonymous mappings, which the kernel zeroes on first touch.
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "../../core/control_groups.hpp"

extern "C" {
// AddressSanitizer's function if the program is linked with it, else null. The library itself need not be compiled with
// it.
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* data, std::size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* data, std::size_t bytes);
}

namespace fsdp::device {

std::byte* Cpu::allocate(std::int64_t bytes) {
  require<MemoryError>(bytes >= 0, "cannot allocate ", bytes, " bytes");
  if (bytes == 0) return nullptr;
  const auto size = static_cast<std::size_t>(bytes);
  void* const data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require<MemoryError>(data != MAP_FAILED, "the system gave no ", bytes, " bytes of memory: ", std::strerror(errno),
                       "; compute less at once, or shard over more ranks");
  // Large blocks request huge pages, for fewer TLB misses; at most one page of 2 MiB is wasted. Only a hint: failure is
  // harmless.
  if (bytes >= std::int64_t{32} << 20) madvise(data, size, MADV_HUGEPAGE);
  return static_cast<std::byte*>(data);
}

void Cpu::deallocate(std::byte* data, std::int64_t bytes) {
  if (data == nullptr) return;
  unpoison(data, bytes);
  munmap(data, static_cast<std::size_t>(bytes));
}

void Cpu::poison(std::byte* data, std::int64_t bytes) {
  if (bytes == 0 || data == nullptr) return;
  if (__asan_poison_memory_region != nullptr) __asan_poison_memory_region(data, static_cast<std::size_t>(bytes));
#if !defined(NDEBUG)
  else
    std::memset(data, 0xff, static_cast<std::size_t>(bytes));  // NaN in every floating-point type
#endif
}

void Cpu::unpoison(std::byte* data, std::int64_t bytes) {
  if (bytes > 0 && data != nullptr && __asan_unpoison_memory_region != nullptr)
    __asan_unpoison_memory_region(data, static_cast<std::size_t>(bytes));
}

std::string affinity_mask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  // The call fails on a machine with more cores than the mask has bits; then all online cores are counted.
  if (sched_getaffinity(0, sizeof mask, &mask) != 0)
    return std::string(static_cast<std::size_t>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L)), '1');
  std::string text;
  for (std::size_t core = 0, left = static_cast<std::size_t>(CPU_COUNT(&mask)); left > 0; ++core) {
    const bool ours = CPU_ISSET(core, &mask);
    text += ours ? '1' : '0';
    left -= ours ? 1 : 0;
  }
  return text;
}

int available_cores() {
  const auto cores = static_cast<int>(std::ranges::count(affinity_mask(), '1'));
  return std::max(std::min(cores, quota_of_cores().value_or(cores)), 1);
}

}  // namespace fsdp::device
