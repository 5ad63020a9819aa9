// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CPU: memory from the process's address space, operations that are done when they return.
///
/// matmul is oneDNN's; all else is ours, vectorised for the instruction set found at start and threaded with OpenMP.
/// Results depend on the number of threads and on nothing else. Every output is fully written.
/// Reductions over tokens are in float.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/device/queue.hpp>

namespace fsdp::device {

/// The host's cores, by oneDNN and kernels of our own. Operations run at once, by the threads of a rank's team.
struct Cpu {
  static constexpr std::string_view name = "cpu";
  static constexpr bool counts_only = false;   ///< whether tensors have no storage
  static constexpr bool asynchronous = false;  ///< whether operations are queued, and done later
  static constexpr bool overlaps = false;      ///< whether collectives run beside computation
  static constexpr bool host_memory = true;    ///< whether the host reads and writes tensors where they lie
  using Arena = device::Arena<Cpu>;
  using Event = ImmediateEvent;
  using Queue = ImmediateQueue;
  class Planner;
  class Stream;

  /// Zeroed, aligned to `alignment`. Throws MemoryError.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  /// Marks released memory: unreadable under AddressSanitizer, NaN in debug builds, nothing otherwise.
  static void poison(std::byte* data, std::int64_t bytes);
  static void unpoison(std::byte* data, std::int64_t bytes);
  static std::byte* unbacked(std::int64_t) { return nullptr; }
  /// Copies bytes from or to the host.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
};

/// What a kernel's scratch depends on besides the problem: threads, and the library's descriptors. It computes nothing,
/// so that `threads` may be more than this machine has.
class Cpu::Planner {
 public:
  /// Throws InputError where threads < 1.
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

/// A rank's queue of work: its threads, its scratch, its counters. Not shared between ranks. Operations on it run at
/// once.
class Cpu::Stream : public Queue, public Planner {
 public:
  /// Takes scratch from `arena`. `threads` becomes the OpenMP team size of the calling thread.
  Stream(Arena& arena, int threads);

  Arena& arena() const { return *arena_; }
  Counters counters;

 private:
  Arena* arena_;
};

// ---- Operations, in src/device/cpu/. T is float or bf16.
// --------------------------------------------------------------

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

/// Both throw InputError where a token is not in the vocabulary.
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

/// Cores that this process may use: of its affinity mask, and as many as the quotas of its control groups make.
int available_cores();

/// The instruction set that kernels use: baseline, avx2, avx512 (without its bf16) or avx512_bf16, each of which has
/// those before it; on aarch64 neon. The best of this processor, or what TESSERA_ISA names. Throws InputError for one
/// that is not there.
std::string_view instruction_set();
/// Lines "NAME = value" of the environment variables that say how bf16 is multiplied.
std::string bf16_environment();
/// The instruction set, and how bf16 is multiplied where that is not usual for the set: what metrics and checkpoints
/// record, because results depend on it to the last bit.
std::string arithmetic();
/// The one that all of several machines have. Throws InputError for the set of another architecture.
std::string_view least_instruction_set(std::span<const std::string> sets);
/// A lesser set from now on, before anything was computed: what is computed later then rounds as a lesser machine does.
void keep_to_instruction_set(std::string_view name);

FSDP_ENQUEUE(extern template, Cpu::Stream)

}  // namespace fsdp::device
