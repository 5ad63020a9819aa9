// SPDX-License-Identifier: Apache-2.0
/// @file
/// An NVIDIA GPU: device memory, operations that are queued on streams.
///
/// matmul is cuBLASLt's, attention cuDNN's where the build found it; all else is ours, in src/device/cuda/. Operations
/// return once they are queued; their outputs are fully written when an event recorded afterwards has happened. Two
/// runs give the same bits: sums are in a fixed order, without atomics. Tensors are device memory (or pinned host
/// memory); `documents` are host lists. Tokens and targets must be in the vocabulary, which is checked where batches
/// enter (fsdp/micro_batch.hpp): a kernel cannot throw, and shows NaN for one that is not. No header of CUDA is
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

namespace fsdp::device {

/// Why no device can be used, in one sentence: none there, a driver older than the toolkit, code for other
/// architectures than the device's. Empty where all is well.
std::string cuda_problem();
/// How many devices there are; 0 where there is a problem.
int cuda_devices();
/// What this thread makes from here on, it makes on the device `index`. Throws InputError where that does not exist.
void use_cuda_device(int index);

/// A named range of host code, and of what it queues, in profilers (NVTX), from construction to destruction; ranges of
/// a thread nest. Costs nothing unless a profiler is attached.
class CudaRange {
 public:
  explicit CudaRange(const char* name);
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
  ~CudaRange();
};

struct Cuda {
  static constexpr std::string_view name = "cuda";
  static constexpr bool counts_only = false;
  static constexpr bool asynchronous = true;
  static constexpr bool overlaps = true;
  static constexpr bool host_memory = false;
  using Arena = device::Arena<Cuda>;
  using Range = CudaRange;  ///< named in profilers
  class Event;
  class Queue;
  class Graph;
  class Stream;

  /// Throws InputError with what is wrong where there is none to use.
  static int count();
  static void select(int index) { use_cuda_device(index); }
  /// Bytes of the calling thread's device that nobody holds, other programs included. Throws InputError with what is
  /// wrong where there is no device to use.
  static std::int64_t free_bytes();

  /// Zeroed, aligned to 256 bytes, on the calling thread's device. Throws MemoryError, which tells how much is free.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  /// Debug builds wait for the device and fill released memory with NaN; others do nothing.
  static void poison(std::byte* data, std::int64_t bytes);
  static void unpoison(std::byte*, std::int64_t) {}
  static std::byte* unbacked(std::int64_t) { return nullptr; }

  /// A CUDA graph (see device::Captures). In debug builds released memory is filled with NaN, for which the host waits:
  /// there it throws InputError.
  static Graph capture(Queue& queue, const std::function<void()>& ask);

  // What communicators queue (device/device.hpp).
  /// Any two of device memory, pinned and pageable host memory; with the last the host waits.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes);
  static void round(Queue&, const float* from, DType wire, std::int64_t count, std::byte* to);
  /// At most 256 parts.
  static void sum_in_order(Queue&, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum);

  // The operations of Cpu, with the same meaning. (A, C) of matmul is (T, T) or (T, float), T float, bf16 or f16.
  template <class A, class C>
  static void matmul(Stream&, Operand<A> a, Operand<A> b, Tensor<C> c, Write write = Write::overwrite);

  template <class T>
  static void rms_norm(Stream&, Tensor<const T> x, Tensor<const T> w, float eps, Tensor<T> y, Tensor<float> rstd);
  template <class T>
  static void rms_norm_backward(Stream&, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                                Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw, Write dw_write);

  static void rotary_table(Stream&, float theta, Tensor<float> table);
  template <class T>
  static void rope(Stream&, Tensor<T> x, Tensor<const float> table, Rotation rotation,
                   CumulativeLengths documents = {});

  /// By cuDNN, in builds that have it, for bf16 and f16, whole sequences, head sizes that are multiples of 8 up to 128
  /// and rows that start at multiples of 16 bytes. Else ours: on the tensor cores for such rows with head sizes 64 and
  /// 128; a warp a row for the rest, for head sizes up to 512.
  template <class T>
  static void attention(Stream&, const AttentionShape&, Tensor<const T> q, Tensor<const T> k, Tensor<const T> v,
                        Tensor<T> out, Tensor<float> lse);
  /// Ours: dk and dv are summed by the owner of a block of keys, dq by the owner of a block of queries: scores are
  /// computed twice, and nothing depends on timing. cuDNN's deterministic way keeps the gradients of scores instead, so
  /// that it does a few heads at a time, and is not asked where one key-value head would take 1.25 GiB.
  template <class T>
  static void attention_backward(Stream&, const AttentionShape&, Tensor<const T> q, Tensor<const T> k,
                                 Tensor<const T> v, Tensor<const T> out, Tensor<const float> lse, Tensor<const T> dout,
                                 Tensor<T> dq, Tensor<T> dk, Tensor<T> dv);

  template <class T>
  static void swiglu(Stream&, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h);
  template <class T>
  static void swiglu_backward(Stream&, Tensor<T> gate, Tensor<T> up, Tensor<T> dh);

  template <class T>
  static void embedding(Stream&, Tensor<const T> table, Tensor<const std::int32_t> tokens, Tensor<T> out);
  /// Every block of threads owns rows of the table and reads all tokens: about a thousand times 4 bytes a token, most
  /// of them from the cache, beside the traffic of dy and dtable.
  template <class T>
  static void embedding_backward(Stream&, Tensor<const std::int32_t> tokens, Tensor<const T> dy, Tensor<float> dtable,
                                 Write write);

  template <class T>
  static void cross_entropy(Stream&, Tensor<T> logits, Tensor<const std::int32_t> targets, float scale,
                            Tensor<double> loss);
  template <class T>
  static void cross_entropy_loss(Stream&, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                                 Tensor<double> loss);
  static constexpr std::int64_t cross_entropy_state = 3;
  template <class T>
  static void cross_entropy_fold(Stream&, Tensor<const T> logits, std::int64_t first,
                                 Tensor<const std::int32_t> targets, Tensor<double> state);
  static void cross_entropy_sum(Stream&, Tensor<const double> state, Tensor<double> loss);
  template <class T>
  static void cross_entropy_gradient(Stream&, Tensor<T> logits, std::int64_t first, Tensor<const std::int32_t> targets,
                                     float scale, Tensor<const double> state);

  template <class T>
  static void add(Stream&, Tensor<const T> x, Tensor<T> y);
  template <class X, class Y>
  static void copy(Stream&, Tensor<const X> x, Tensor<Y> y);
  template <class T>
  static void fill(Stream&, Tensor<T> y, float value);

  static void sum_of_squares(Stream&, Tensor<const float> x, Tensor<double> sum);
  static void decide_step(Stream&, const StepRules&, Tensor<const StepInputs>, Tensor<const double> sums,
                          Tensor<StepDecision> step);
  template <class T>
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision>, Tensor<const T>, Tensor<float>,
                    Tensor<float>, Tensor<const float>, Tensor<bf16>) {
    refuse_gathered_weights<T>();
  }
  static void adamw(Stream&, const AdamWRules&, Tensor<const StepDecision> step, Tensor<float> main,
                    Tensor<float> first_moment, Tensor<float> second_moment, Tensor<const float> gradient,
                    Tensor<bf16> model);
};

/// A point in a queue's work. Copies are the same point; a default one has happened.
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
  explicit Queue(std::string_view name);

  Event record();
  void wait(const Event& event);
  /// Returns when everything that was asked for is done; throws what a kernel did wrong meanwhile.
  void synchronize();

  const std::string& name() const { return name_; }
  void* native() const { return handle_.get(); }  ///< a cudaStream_t

 private:
  std::shared_ptr<void> handle_;
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

/// A rank's queue of computation. All scratch, cuBLASLt's workspace too, comes from `arena` and is known to dry runs
/// (src/device/cuda/scratch.hpp).
class Cuda::Stream : public Queue {
 public:
  /// `threads` are the host's and not used. With `plain`, or TESSERA_CUDA_PLAIN=1 in the environment, every kernel is
  /// the simplest there is, one element a thread: what the others are compared with. TESSERA_CUDA_ATTENTION=own keeps
  /// attention from cuDNN; =cudnn makes an attention that cuDNN does not take an error which says why.
  explicit Stream(Arena& arena, int threads = 1, bool plain = false);
  Stream(Stream&&) noexcept;
  ~Stream();

  Arena& arena() const { return *arena_; }
  int threads() const { return 1; }
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
  static void unpoison(std::byte*, std::int64_t) {}
  static std::byte* unbacked(std::int64_t) { return nullptr; }

  template <class T>
  static void transfer(Cuda::Stream&, Cuda::Queue& queue, Tensor<const T> from, Tensor<T> to) {
    device::move<Cuda>(queue, from.data(), to.data(), from.numel());
  }
  template <class... Arguments>
  static void adamw(Cuda::Stream& stream, const Arguments&... arguments) {
    Cuda::adamw(stream, arguments...);
  }
};

}  // namespace fsdp::device
