// SPDX-License-Identifier: Apache-2.0
#include "accesses.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

#include "block.hpp"
#include "controls.hpp"
#include "races.hpp"

namespace fsdp::device::cuda::emulation {
namespace {

constexpr std::size_t granule = 64;

/// One allocation.
struct Memory {
  Range range;
  Races races = {message("an allocation of ", range.bytes, " bytes"), Races::Scope::grid, range};
  std::vector<bool> forbidden = {};  ///< by granule; empty if all of it may be accessed

  bool allows(std::uintptr_t address, std::size_t bytes) const {
    if (bytes > range.begin + range.bytes - address) return false;
    if (forbidden.empty()) return true;
    for (std::size_t i = (address - range.begin) / granule; i <= (address - range.begin + bytes - 1) / granule; ++i)
      if (forbidden[i]) return false;
    return true;
  }
};

/// All device memory, by address.
struct Memories {
  std::mutex mutex;  ///< held while a checked kernel runs
  std::map<std::uintptr_t, Memory> all;
  Memory* last = nullptr;  ///< cache: most accesses are in the same memory as the previous one

  Memory* find(std::uintptr_t address) {
    if (last != nullptr && last->range.holds(address)) return last;
    auto next = all.upper_bound(address);
    if (next == all.begin() || !(--next)->second.range.holds(address)) return nullptr;
    return last = &next->second;
  }
};
Memories& memories() {
  static auto* const made = new Memories;  // memory blocks may outlive other globals
  return *made;
}

/// Address ranges of the program's variables, which in kernels are their static shared memory, and of its constants.
struct Program {
  Range variables;
  std::vector<Range> constants;

  Program() {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* made) {
          static_cast<Program*>(made)->read(*info);
          return 1;  // the first entry is the program itself
        },
        this);
  }
  bool is_constant(std::uintptr_t address) const {
    return std::any_of(constants.begin(), constants.end(), [&](const Range& range) { return range.holds(address); });
  }

 private:
  void read(const dl_phdr_info& info) {
    for (int i = 0; i < info.dlpi_phnum; ++i) {
      const auto& segment = info.dlpi_phdr[i];
      const Range range = {info.dlpi_addr + segment.p_vaddr, segment.p_memsz};
      if (segment.p_type == PT_LOAD && (segment.p_flags & PF_W) != 0) variables = range;
      if ((segment.p_type == PT_LOAD && (segment.p_flags & PF_W) == 0) || segment.p_type == PT_GNU_RELRO)
        constants.push_back(range);
    }
  }
};
const Program& program() {
  static const Program found;
  return found;
}

bool checks_are_on = false;
thread_local bool runs_kernel = false;

Races& static_shared() {
  static Races made("static shared memory", Races::Scope::block, program().variables);
  return made;
}
/// The largest possible dynamic shared memory; its begin never changes.
Races& all_dynamic_shared() {
  static Races made("dynamic shared memory", Races::Scope::block, {dynamic_shared.begin, most_shared});
  return made;
}

const char* verb(Access access) { return access == Access::read ? "reads" : "writes"; }

/// The rest of a failure's message: the address relative to the preceding memory.
std::string place_of(std::uintptr_t address) {
  auto& all = memories().all;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return "which no allocation holds";
  const Range& before = (--next)->second.range;
  if (before.holds(address))
    return message("at byte ", address - before.begin, " of an allocation of ", before.bytes,
                   " bytes, which no tensor holds or not all of them");
  return message(address - before.begin - before.bytes, " bytes behind an allocation of ", before.bytes);
}

void check(std::uintptr_t address, std::size_t bytes, Access access) {
  if (dynamic_shared.holds(address)) {
    require_of_thread(bytes <= dynamic_shared.begin + dynamic_shared.bytes - address, verb(access), " ", bytes,
                      " bytes across the end of ", dynamic_shared.bytes, " bytes of dynamic shared memory");
    return all_dynamic_shared().access(address, bytes, access);
  }
  if (access == Access::read && (parameters.holds(address) || closure.holds(address))) return;
  if (Memory* const memory = memories().find(address); memory != nullptr && memory->allows(address, bytes))
    return memory->races.access(address, bytes, access);
  if (access == Access::read && program().is_constant(address)) return;
  if (program().variables.holds(address) && !program().is_constant(address))
    return static_shared().access(address, bytes, access);
  fail(message(verb(access), " ", bytes, " bytes ", place_of(address)));
}

void enter(const void* data, std::size_t bytes, Access access) {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (runs_kernel && !stack.holds(address)) check(address, bytes, access);
}

void allow(const std::byte* data, std::size_t bytes, bool forbidden) {
  const std::lock_guard lock(memories().mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  auto next = memories().all.upper_bound(address);
  if (bytes == 0 || next == memories().all.begin() || !(--next)->second.range.holds(address)) return;
  const Range& range = next->second.range;
  std::vector<bool>& granules = next->second.forbidden;
  if (granules.empty()) granules.resize((range.bytes + granule - 1) / granule);
  const std::size_t first = (address - range.begin) / granule;
  const std::size_t last = (address - range.begin + bytes + granule - 1) / granule;
  std::fill(granules.begin() + static_cast<std::ptrdiff_t>(first),
            granules.begin() + static_cast<std::ptrdiff_t>(std::min(last, granules.size())), forbidden);
}

}  // namespace

void check_accesses(bool on) { checks_are_on = on; }

Checks::Checks() {
  runs_kernel = checks_are_on;
  if (checks_are_on) lock_ = std::unique_lock(memories().mutex);
}
Checks::~Checks() { runs_kernel = false; }

void add_memory(const std::byte* data, std::size_t bytes) {
  const std::lock_guard lock(memories().mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  memories().all.insert_or_assign(address, Memory{.range = {address, bytes}});
}
void remove_memory(const std::byte* data) {
  const std::lock_guard lock(memories().mutex);
  memories().last = nullptr;
  memories().all.erase(reinterpret_cast<std::uintptr_t>(data));
}
void forbid(const std::byte* data, std::size_t bytes) { allow(data, bytes, true); }
void permit(const std::byte* data, std::size_t bytes) { allow(data, bytes, false); }

void reads(const void* data, std::size_t bytes) { enter(data, bytes, Access::read); }
void writes(const void* data, std::size_t bytes) { enter(data, bytes, Access::write); }
void copy_begins(const void* to, std::size_t bytes) { enter(to, bytes, Access::copy_begins); }
void copy_ends(const void* to, std::size_t bytes) { enter(to, bytes, Access::copy_ends); }

}  // namespace fsdp::device::cuda::emulation

// ---- Functions that compilers call with -fsanitize=thread

using fsdp::device::cuda::emulation::reads;
using fsdp::device::cuda::emulation::writes;

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define FSDP_ACCESSES(bytes)                                                  \
  void __tsan_read##bytes(void* data) { reads(data, bytes); }                 \
  void __tsan_write##bytes(void* data) { writes(data, bytes); }               \
  void __tsan_unaligned_read##bytes(const void* data) { reads(data, bytes); } \
  void __tsan_unaligned_write##bytes(void* data) { writes(data, bytes); }
FSDP_ACCESSES(1)
FSDP_ACCESSES(2)
FSDP_ACCESSES(4)
FSDP_ACCESSES(8)
FSDP_ACCESSES(16)
void __tsan_read_range(void* data, unsigned long bytes) { reads(data, bytes); }
void __tsan_write_range(void* data, unsigned long bytes) { writes(data, bytes); }
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Reference counts of host code.
unsigned __tsan_atomic32_fetch_add(volatile void* data, unsigned by, int) {
  return __atomic_fetch_add(static_cast<volatile unsigned*>(data), by, __ATOMIC_ACQ_REL);
}

// clang replaces memcpy and its like by these.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes) {
  reads(from, bytes);
  writes(to, bytes);
  return __builtin_memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) {
  reads(from, bytes);
  writes(to, bytes);
  return __builtin_memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, unsigned long bytes) {
  writes(to, bytes);
  return __builtin_memset(to, value, bytes);
}
}
