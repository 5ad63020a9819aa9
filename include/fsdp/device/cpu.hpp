// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU device: host memory, and operations that are complete when they return.
///
/// oneDNN computes matmuls; all other kernels are ours, vectorised for the instruction set found at start and threaded
/// with OpenMP. Results depend only on the number of threads and on `arithmetic()`. Every output is fully written.
/// Reductions over tokens are in float.
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
#include <tessera/fsdp/device/operations.hpp>
#include <tessera/fsdp/device/queue.hpp>

namespace fsdp::device {

/// The host's cores. Operations run synchronously, on the rank's OpenMP threads.
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

/// The state that scratch sizes depend on besides the problem: the number of threads and oneDNN's primitives. It
/// computes nothing, so `threads` may exceed this machine's cores.
class Cpu::Planner {
 public:
  /// Throws InputError if threads < 1.
  explicit Planner(int threads);
  Planner(Planner&&) noexcept;
  ~Planner();

  int threads() const { return threads_; }

  struct Cache;  ///< oneDNN primitives by problem
  Cache& cache() const { return *cache_; }

 private:
  int threads_;
  std::unique_ptr<Cache> cache_;
};

/// A rank's stream: threads, scratch and counters. Ranks do not share one. Operations run at once.
class Cpu::Stream : public Queue, public Planner {
 public:
  /// Takes scratch from `arena`. Sets the OpenMP team size of the calling thread to `threads`.
  Stream(Arena& arena, int threads);

  Arena& arena() const { return *arena_; }
  Counters counters;

 private:
  Arena* arena_;
};

// ---- Operations: src/fsdp/device/cpu/. T is float or bf16. ----

/// (A, C) is (float, float), (bf16, bf16) or (bf16, float).
template <ComputedBy<Cpu> A, ComputedBy<Cpu> C>
std::int64_t scratch(const Cpu::Planner&, const Matmul<A, C>&);
template <ComputedBy<Cpu> A, ComputedBy<Cpu> C>
void run(Cpu::Stream&, const Matmul<A, C>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const RmsNorm<T>&);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const RmsNormBackward<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const RmsNormBackward<T>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const AddBias<T>&);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const BiasBackward<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const BiasBackward<T>&, Scratch);

void run(Cpu::Stream&, const RotaryTable&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Rope<T>&);

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const Attention<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Attention<T>&, Scratch);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const AttentionBackward<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const AttentionBackward<T>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const KeepHeads<T>&);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CachedAttention<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CachedAttention<T>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const SwiGlu<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const SwiGluBackward<T>&);

/// Both throw InputError if a token is not in the vocabulary.
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Embedding<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const EmbeddingBackward<T>&);

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CrossEntropy<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropy<T>&, Scratch);
template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner&, const CrossEntropyLoss<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropyLoss<T>&, Scratch);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropyFold<T>&);
void run(Cpu::Stream&, const CrossEntropySum&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const CrossEntropyGradient<T>&);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Add<T>&);
template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream&, const Copy<X, Y>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Fill<T>&);
void run(Cpu::Stream&, const Fill<double>&);
template <ComputedBy<Cpu> X, ComputedBy<Cpu> Y>
void run(Cpu::Stream&, const Scale<X, Y>&);

std::int64_t scratch(const Cpu::Planner&, const SumOfSquares&);
void run(Cpu::Stream&, const SumOfSquares&, Scratch);
void run(Cpu::Stream&, const DecideStep&);
template <ComputedBy<Cpu> Model>
void run(Cpu::Stream&, const AdamWStep<Model>&);
template <ComputedBy<Cpu> Model>
void run(Cpu::Stream&, const SgdStep<Model>&);

void run(Cpu::Stream&, const MomentumDirection&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Normalized<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const Combination<T>&);
template <ComputedBy<Cpu> T>
void run(Cpu::Stream&, const DirectionStep<T>&);

/// Returns this process's affinity mask: a character for each core, '1' where it may run.
std::string affinity_mask();
/// Returns the number of cores that this process may use: those of its affinity mask, limited by its cgroups' CPU
/// quotas.
int available_cores();

/// Returns the instruction set that kernels use: baseline, avx2, avx512 (without its bf16 instructions) or avx512_bf16,
/// each of which includes those before it; on aarch64 neon. It is the processor's best, or the lesser one that
/// TESSERA_ISA names. Throws InputError if TESSERA_ISA names an unknown set or one that the processor lacks.
std::string_view instruction_set();
/// Returns lines "NAME = value" of the environment variables that select how bf16 is multiplied.
std::string bf16_environment();
/// Returns the instruction set and, if not the set's default, how bf16 is multiplied. Metrics and checkpoints record
/// it, because the bits of results depend on it.
std::string arithmetic();
/// Returns the best set that all of `sets` include. Throws InputError if one is of another architecture.
std::string_view least_instruction_set(std::span<const std::string> sets);
/// Lowers the instruction set, so that results have the bits of a lesser machine. Call it before anything is computed.
void keep_to_instruction_set(std::string_view name);

FSDP_ENQUEUE(extern template, Cpu::Stream)

}  // namespace fsdp::device
