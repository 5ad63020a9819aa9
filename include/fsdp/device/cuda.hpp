// SPDX-License-Identifier: Apache-2.0
/// @file
/// An NVIDIA GPU: device memory, operations that are queued on streams.
///
/// matmul is cuBLASLt's, attention cuDNN's where the build found it; all else is ours, in src/device/cuda/. Operations
/// return once they are queued; their outputs are fully written when an event recorded afterwards has happened. Two
/// runs give the same bits: sums are in a fixed order, without atomics. Tensors are device memory (or pinned host
/// memory); `documents` are host lists. Tokens and targets must be in the vocabulary, which is checked where batches
/// enter (Model::validate): a kernel cannot throw, and shows NaN for one that is not. No header of CUDA is
/// included here: code that uses this device compiles without the toolkit, and links tessera::cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/device.hpp>
#include <fsdp/device/memory.hpp>
#include <fsdp/device/offload.hpp>
#include <fsdp/device/operations.hpp>
#include <fsdp/device/queue.hpp>

namespace fsdp::device {

/// Why the calling thread's device cannot be used, in one sentence: none there, a driver older than the toolkit, code
/// for other architectures than the device's. Empty where all is well. Makes a context on the device: a rank of several
/// on a machine chooses its own first.
std::string cuda_problem();
/// How many devices there are; 0 where there is a problem. Makes no context.
int cuda_devices();
/// What this thread makes from here on, it makes on the device `index`. Throws InputError where that does not exist or
/// cannot be used.
void use_cuda_device(int index);

/// A named range of host code, and of what it queues, in profilers (NVTX), from construction to destruction; ranges of
/// a thread nest. Costs nothing unless a profiler is attached.
class CudaRange {
 public:
  /// `name` must be a literal, or outlive the range.
  explicit CudaRange(const char* name);
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
  ~CudaRange();
};

/// An NVIDIA GPU: operations are queued. One rank uses one device, that of the thread which makes its queues.
struct Cuda {
  static constexpr std::string_view name = "cuda";
  static constexpr bool counts_only = false;
  static constexpr bool asynchronous = true;
  static constexpr bool overlaps = true;
  static constexpr bool host_memory = false;
  static constexpr std::int64_t flops_per_byte = 200;  ///< an H200: 990 TFLOP/s in bf16 and 4.8 TB/s
  using Arena = device::Arena<Cuda>;
  using Range = CudaRange;  ///< named in profilers
  class Event;
  class Queue;
  class Graph;
  class Planner;
  class Stream;

  /// Throws InputError with what is wrong where there is none. Makes no context, so that a rank may count and choose.
  static int count();
  /// For the calling thread; see use_cuda_device.
  static void select(int index) { use_cuda_device(index); }
  /// Bytes of the calling thread's device that nobody holds, other programs included. Throws InputError with what is
  /// wrong where there is no device to use.
  static std::int64_t free_bytes();

  /// Zeroed, aligned to 256 bytes, on the calling thread's device. Throws MemoryError, which tells how much is free.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  /// Debug builds wait for the device and fill released memory with NaN; others do nothing.
  static void poison(std::byte* data, std::int64_t bytes);
  static void unpoison(std::byte* data, std::int64_t bytes);  ///< nothing, but where tests emulate the device
  static std::byte* unbacked(std::int64_t) { return nullptr; }

  /// A CUDA graph (see device::Captures). In debug builds released memory is filled with NaN, for which the host waits:
  /// there it throws InputError.
  static Graph capture(Queue& queue, const std::function<void()>& work);

  // What communicators queue (device/device.hpp).
  /// Any two of device memory, pinned and pageable host memory; with the last the host waits.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes);
  static void round(Queue&, const float* from, DType wire, std::int64_t count, std::byte* to);
  /// At most 256 parts.
  static void sum_in_order(Queue&, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum);
};

/// A point in a queue's work. Copies are the same point; a default one has happened. The last of them gives the
/// cudaEvent_t back to its queue, which records it again.
class Cuda::Event {
 public:
  Event() = default;
  bool happened() const;
  void* native() const { return handle_.get(); }  ///< a cudaEvent_t, or nullptr

 private:
  friend class Queue;
  std::shared_ptr<void> handle_;
};

/// Work that runs in order, beside other queues. Not shared between host threads.
class Cuda::Queue {
 public:
  /// On the calling thread's device. `name` is for people: traces and errors.
  explicit Queue(std::string_view name, Priority priority = Priority::usual);

  Event record();
  void wait(const Event& event);
  /// Returns when everything that was enqueued is done; throws what a kernel did wrong meanwhile.
  void synchronize();

  /// As given, for traces and errors.
  const std::string& name() const { return name_; }
  void* native() const { return handle_.get(); }  ///< a cudaStream_t

 private:
  class Events;
  std::shared_ptr<void> handle_;
  std::shared_ptr<Events> events_;  ///< shared with events, which may live longer
  std::string name_;
};

/// Kept work, on the device that it was captured on. A default one is empty.
class Cuda::Graph {
 public:
  Graph() = default;
  void launch(Queue& queue) const;

 private:
  friend struct Cuda;
  std::shared_ptr<void> handle_;  ///< a cudaGraphExec_t
};

/// Scratch of kernels is a function of the problem alone.
class Cuda::Planner {
 public:
  explicit Planner(int = 1) {}  ///< the host's threads, which are not used
  int threads() const { return 1; }
};

/// A rank's queue of computation. All scratch, cuBLASLt's workspace too, comes from `arena` and is known to dry runs
/// (src/device/cuda/scratch.hpp).
class Cuda::Stream : public Queue, public Planner {
 public:
  /// `threads` are the host's and not used. With `plain`, or TESSERA_CUDA_PLAIN=1 in the environment, every kernel is
  /// the simplest there is, one element a thread: what the others are compared with. TESSERA_CUDA_ATTENTION=own keeps
  /// attention from cuDNN; =cudnn makes an attention that cuDNN does not take an error which says why.
  explicit Stream(Arena& arena, int threads = 1, bool plain = false);
  Stream(Stream&&) noexcept;
  ~Stream();

  Arena& arena() const { return *arena_; }
  /// Whether every kernel is the simplest there is.
  bool plain() const { return plain_; }
  Counters counters;

  struct Cache;  ///< handles of cuBLASLt and cuDNN, and what they planned, by problem
  Cache& cache() const { return *cache_; }

 private:
  Arena* arena_;
  bool plain_;
  std::unique_ptr<Cache> cache_;
};

template <>
inline constexpr bool computes_in<Cuda, f16> = true;

// ---- Operations, in src/device/cuda/, with the meaning that they have on the CPU. T is float, bf16 or f16.
// ------------ Scratch is defined without CUDA, in src/device/cuda_scratch.cpp, so that dry runs on any machine know
// it.

/// (A, C) is (T, T) or (T, float).
template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
std::int64_t scratch(const Cuda::Planner&, const Matmul<A, C>&);
template <ComputedBy<Cuda> A, ComputedBy<Cuda> C>
void run(Cuda::Stream&, const Matmul<A, C>&, Scratch);

template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const RmsNorm<T>&);
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const RmsNormBackward<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const RmsNormBackward<T>&, Scratch);

template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const AddBias<T>&);
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const BiasBackward<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const BiasBackward<T>&, Scratch);

void run(Cuda::Stream&, const RotaryTable&);
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const Rope<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Rope<T>&, Scratch);

/// By cuDNN, in builds that have it, for bf16 and f16, whole sequences, head sizes that are multiples of 8 up to 128
/// and rows that start at multiples of 16 bytes. Else ours: on the tensor cores for such rows with head sizes that are
/// multiples of 8 up to 256, in tiles of the next wider of 32, 64, 80, 96, 128, 192 and 256 columns; a warp a row
/// for the rest, for head sizes up to 512, which is tens of times slower.
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const Attention<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Attention<T>&, Scratch);
/// Ours: dk and dv are summed by the owner of a block of keys, dq by the owner of a block of queries: scores are
/// computed twice, three times for head sizes above 128, and nothing depends on timing. cuDNN's deterministic way keeps
/// the gradients of scores instead, so that it does a few heads at a time, and is not used where one key-value head
/// would take 1.25 GiB.
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const AttentionBackward<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const AttentionBackward<T>&, Scratch);

template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const KeepHeads<T>&);
/// A block of threads for each head and sequence, for head sizes up to 512.
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const CachedAttention<T>&);

template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const SwiGlu<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const SwiGluBackward<T>&);

template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Embedding<T>&);
/// Every block of threads owns rows of the table, every 1024th, and reads all tokens: about a thousand times 4 bytes a
/// token, most of them from the cache, beside the traffic of dy and dtable.
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const EmbeddingBackward<T>&);

template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const CrossEntropy<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const CrossEntropy<T>&, Scratch);
template <ComputedBy<Cuda> T>
std::int64_t scratch(const Cuda::Planner&, const CrossEntropyLoss<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const CrossEntropyLoss<T>&, Scratch);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const CrossEntropyFold<T>&);
void run(Cuda::Stream&, const CrossEntropySum&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const CrossEntropyGradient<T>&);

template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Add<T>&);
template <ComputedBy<Cuda> X, ComputedBy<Cuda> Y>
void run(Cuda::Stream&, const Copy<X, Y>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Fill<T>&);
void run(Cuda::Stream&, const Fill<double>&);
template <ComputedBy<Cuda> X, ComputedBy<Cuda> Y>
void run(Cuda::Stream&, const Scale<X, Y>&);

std::int64_t scratch(const Cuda::Planner&, const SumOfSquares&);
void run(Cuda::Stream&, const SumOfSquares&, Scratch);
void run(Cuda::Stream&, const DecideStep&);
template <ComputedBy<Cuda> Model>
std::int64_t scratch(const Cuda::Planner&, const AdamWStep<Model>&);
template <ComputedBy<Cuda> Model>
void run(Cuda::Stream&, const AdamWStep<Model>&, Scratch);
template <ComputedBy<Cuda> Model>
void run(Cuda::Stream&, const SgdStep<Model>&);

void run(Cuda::Stream&, const MomentumDirection&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Normalized<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const Combination<T>&);
template <ComputedBy<Cuda> T>
void run(Cuda::Stream&, const DirectionStep<T>&);

/// Pinned host memory. The optimizer reads and writes it across the bus.
template <>
struct HostOffload<Cuda> {
  static constexpr bool counts_only = false;
  static constexpr bool host_memory = true;
  using Arena = device::Arena<HostOffload>;
  using Queue = Cuda::Queue;

  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  static void poison(std::byte* data, std::int64_t bytes) { Cuda::poison(data, bytes); }
  static void unpoison(std::byte* data, std::int64_t bytes) { Cuda::unpoison(data, bytes); }
  static std::byte* unbacked(std::int64_t) { return nullptr; }

  template <class T>
  static void transfer(Cuda::Stream&, Cuda::Queue& queue, Tensor<const T> from, Tensor<T> to) {
    device::move<Cuda>(queue, from.data(), to.data(), from.numel());
  }
};

}  // namespace fsdp::device
