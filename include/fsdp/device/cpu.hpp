// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU device: host memory, and operations that are complete when they return.
///
/// This header declares its memory, its stream, and the operations that sharding needs: elementwise operations and
/// optimizer steps. Compute operations, such as matmuls, are in tessera/fsdp/device/compute/cpu.hpp and need
/// tessera::tessera to be linked. Kernels are vectorised for the instruction set found at first use and threaded with
/// OpenMP. Results depend only on the number of threads and the instruction set. Every output is fully written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/codec.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

namespace fsdp::device {

/// The host's cores. Operations run synchronously, on the OpenMP threads of the caller.
struct Cpu {
  static constexpr std::string_view name = "cpu";
  static constexpr bool counts_only = false;   ///< whether tensors have no storage
  static constexpr bool asynchronous = false;  ///< whether operations are enqueued and complete later
  static constexpr bool overlaps = false;      ///< whether collectives overlap with computation
  static constexpr bool host_memory = true;    ///< whether the host can access tensors in place
  using Arena = device::Arena<Cpu>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  class Planner;
  class Stream;

  /// Allocates zeroed memory, aligned to `alignment`. Throws MemoryError.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  /// Marks released memory: unreadable under AddressSanitizer, NaN in debug builds, nothing otherwise.
  static void poison(std::byte* data, std::int64_t bytes);
  static void unpoison(std::byte* data, std::int64_t bytes);
  static std::byte* unbacked(std::int64_t) { return nullptr; }
  /// Copies bytes like memcpy.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};

/// The state that scratch sizes depend on in addition to the problem: the number of threads, and the cache of matmuls.
/// It computes nothing, so `threads` may exceed this machine's cores. Use it from one thread at a time.
class Cpu::Planner {
 public:
  /// Throws InputError if threads < 1.
  explicit Planner(int threads) : threads_(threads) {
    require<InputError>(threads >= 1, "a stream needs at least one thread, not ", threads);
  }
  Planner(Planner&&) noexcept = default;

  int threads() const { return threads_; }

  struct Cache;  ///< cached matmul primitives; incomplete here, made by tessera::tessera at the first matmul
  /// Returns the pointer to the cache of matmuls, which lives as long as the planner; null before the first matmul.
  std::shared_ptr<Cache>& cache() const { return cache_; }

 private:
  int threads_;
  mutable std::shared_ptr<Cache> cache_;
};

/// A rank's stream: threads, scratch and counters. Each rank has its own. Operations run immediately, on teams of
/// `threads()` threads; the calling thread's own OpenMP settings are not changed.
class Cpu::Stream : public Queue, public Planner {
 public:
  /// Allocates scratch from `arena`.
  Stream(Arena& arena, int threads) : Planner(threads), arena_(&arena) {}

  Arena& arena() const { return *arena_; }
  Counters counters;

 private:
  Arena* arena_;
};

// ---- Operations: src/fsdp/device/cpu/. T is float or bf16. ----

FSDP_RUNS_OPERATIONS(Cpu)
FSDP_RUNS(Cpu, AdamWStep)
FSDP_RUNS(Cpu, CodedAdamWStep)

/// Returns this process's affinity mask: one character per core, '1' if the process may run on it.
std::string affinity_mask();
/// Returns the number of cores that this process may use: the cores of its affinity mask, limited by the CPU quotas of
/// its cgroups.
int available_cores();

/// Returns the instruction set that kernels use: baseline, avx2, avx512 (without its bf16 instructions) or avx512_bf16,
/// each of which includes the sets before it; on aarch64 neon. It is the processor's best set, or the lesser set chosen
/// in this process.
std::string_view instruction_set();
/// Chooses an instruction set by its name, for tests and to reproduce the results of another machine. Call it before
/// any computation. Throws InputError for an unknown set, or a set that the processor does not support. `source`: the
/// origin of the name for the error, such as the name of an environment variable.
void choose_instruction_set(std::string_view name, std::string_view source = "the instruction set");
/// Returns the best instruction set that all of `sets` include. Throws InputError if one of them is of another
/// architecture.
std::string_view least_instruction_set(std::span<const std::string> sets);
/// Lowers the instruction set, so that results are bit-identical with those of a machine that supports less. Call it
/// before any computation.
void limit_instruction_set(std::string_view name);
/// Its former name, for this version.
inline void keep_to_instruction_set(std::string_view name) { limit_instruction_set(name); }

FSDP_ENQUEUE(extern template, Cpu::Stream)

// Compiled into the library.
extern template class Arena<Cpu>;

}  // namespace fsdp::device
