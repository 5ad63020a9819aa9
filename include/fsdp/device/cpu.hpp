// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU device: host memory, and operations that are complete when they return.
///
/// This header has its memory, its stream, and the operations that sharding needs: elementwise ones and optimizer
/// steps. Those that compute, such as matmuls, are in tessera/fsdp/device/compute/cpu.hpp and link tessera::tessera.
/// Kernels are vectorised for the instruction set found at first use and threaded with OpenMP. Results depend only on
/// the number of threads and the instruction set. Every output is fully written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/device/operations/digest.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/device/operations/sgd.hpp>
#include <tessera/fsdp/device/queue.hpp>

namespace fsdp::device {

/// The host's cores. Operations run synchronously, on the caller's OpenMP threads.
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
  /// Copies bytes, as memcpy does.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};

/// The state that scratch sizes depend on besides the problem: the number of threads, and what matmuls keep. It
/// computes nothing, so `threads` may exceed this machine's cores. Use it from one thread at a time.
class Cpu::Planner {
 public:
  /// Throws InputError if threads < 1.
  explicit Planner(int threads);
  Planner(Planner&&) noexcept = default;

  int threads() const { return threads_; }

  struct Cache;  ///< what matmuls keep: incomplete here, made by tessera::tessera at the first one
  /// Returns the place of matmuls' cache, which lives as long as the planner; empty before the first matmul.
  std::shared_ptr<Cache>& cache() const { return cache_; }

 private:
  int threads_;
  mutable std::shared_ptr<Cache> cache_;
};

/// A rank's stream: threads, scratch and counters. Ranks do not share one. Operations run at once, on teams of
/// `threads()`; the calling thread's own OpenMP settings stay as they are.
class Cpu::Stream : public Queue, public Planner {
 public:
  /// Takes scratch from `arena`.
  Stream(Arena& arena, int threads) : Planner(threads), arena_(&arena) {}

  Arena& arena() const { return *arena_; }
  Counters counters;

 private:
  Arena* arena_;
};

// ---- Operations: src/fsdp/device/cpu/. T is float or bf16. ----

FSDP_RUNS(Cpu, Add)
template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream&, const Copy<X, Y>&);
FSDP_RUNS(Cpu, Fill)
void run(Cpu::Stream&, const Fill<double>&);
template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream&, const Scale<X, Y>&);

std::int64_t scratch(const Cpu::Planner&, const SumOfSquares&);
void run(Cpu::Stream&, const SumOfSquares&, Scratch);
std::int64_t scratch(const Cpu::Planner&, const LargestMagnitude&);
void run(Cpu::Stream&, const LargestMagnitude&, Scratch);
std::int64_t scratch(const Cpu::Planner&, const FixedPointSquares&);
void run(Cpu::Stream&, const FixedPointSquares&, Scratch);
void run(Cpu::Stream&, const DecideStep&);
FSDP_RUNS_IN_SCRATCH(Cpu, AddDigest)
FSDP_RUNS(Cpu, AdamWStep)
FSDP_RUNS(Cpu, SgdStep)

/// Returns this process's affinity mask: a character for each core, '1' where it may run.
std::string affinity_mask();
/// Returns the number of cores that this process may use: those of its affinity mask, limited by its cgroups' CPU
/// quotas.
int available_cores();

/// Returns the instruction set that kernels use: baseline, avx2, avx512 (without its bf16 instructions) or avx512_bf16,
/// each of which includes those before it; on aarch64 neon. It is the processor's best, or the lesser one that was
/// chosen, in this process.
std::string_view instruction_set();
/// Chooses a set by its name, for tests and to compute as another machine does. Call it before anything is computed.
/// Throws InputError for an unknown set or one that the processor lacks; `source`, such as the name of an environment
/// variable, says in the error where the name is from.
void choose_instruction_set(std::string_view name, std::string_view source = "the instruction set");
/// Returns the best set that all of `sets` include. Throws InputError if one is of another architecture.
std::string_view least_instruction_set(std::span<const std::string> sets);
/// Lowers the instruction set, so that results have the bits of a lesser machine. Call it before anything is computed.
void keep_to_instruction_set(std::string_view name);

FSDP_ENQUEUE(extern template, Cpu::Stream)

// Compiled into the library.
extern template class Block<Cpu>;
extern template class Arena<Cpu>;

}  // namespace fsdp::device
