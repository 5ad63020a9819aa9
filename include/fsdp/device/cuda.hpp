// SPDX-License-Identifier: Apache-2.0
/// @file
/// The CUDA device: an NVIDIA GPU with device memory, whose operations are enqueued on streams.
///
/// This header declares its memory, queues, graphs and stream, and the operations that sharding needs: elementwise
/// operations and optimizer steps. Compute operations are in tessera/fsdp/device/compute/cuda.hpp. Operations return
/// once they are enqueued; their outputs are fully written when an event recorded afterwards has happened. Results are
/// bit-identical in every run: sums have a fixed order and do not use atomics. Tensors are in device memory or pinned
/// host memory. This header does not include CUDA headers, so code that uses this device compiles without the toolkit.
/// Link tessera::cuda_runtime and, for the stream and operations, tessera::cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/device/host_memory.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/device/operations/codec.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>

namespace fsdp::device {

/// Returns a sentence with the reason why the calling thread's device cannot be used: no device, a driver older than
/// the toolkit, or kernels compiled for other architectures. Returns an empty string if it can. Creates a context on
/// the device, so a rank that shares its machine selects its own device first.
std::string cuda_problem();
/// Returns the number of devices; 0 if there is a problem. Creates no context.
int cuda_devices();
/// Makes `index` the calling thread's current device. Throws InputError if it does not exist or cannot be used.
void use_cuda_device(int index);

/// A named NVTX range in profilers, from construction to destruction: the host code and the work that it enqueues.
/// Ranges of one thread may be nested. Costs nothing unless a profiler is attached.
class CudaRange {
 public:
  /// Begins a range. `name` must outlive it, for example as a literal.
  explicit CudaRange(const char* name);
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;
  ~CudaRange();
};

/// An NVIDIA GPU. Operations are asynchronous. A rank uses one device: the one that is current in the thread that makes
/// its queues.
struct Cuda {
  static constexpr std::string_view name = "cuda";
  static constexpr bool counts_only = false;
  static constexpr bool asynchronous = true;
  static constexpr bool overlaps = true;
  static constexpr bool host_memory = false;
  static constexpr std::int64_t flops_per_byte = 200;  ///< ratio on an H200: 990 TFLOP/s in bf16, 4.8 TB/s
  static constexpr int most_parts = 256;               ///< number of parts that sum_in_order adds at most
  using Arena = device::Arena<Cuda>;
  using Range = CudaRange;  ///< a range that is visible in profilers
  class Event;
  class Queue;
  class Graph;
  class Planner;
  class Stream;

  /// Returns the number of devices. Throws InputError with the reason if there is none. Creates no context, so a rank
  /// can count devices before it selects one.
  static int count();
  /// Selects the calling thread's device; see use_cuda_device.
  static void select(int index) { use_cuda_device(index); }
  /// Returns the free bytes of the calling thread's device, which other programs may also use. Throws InputError with
  /// the reason if there is no usable device.
  static std::int64_t free_bytes();
  static std::int64_t total_bytes();  ///< total bytes of the device, used or not; throws as free_bytes does
  /// Returns a description of the calling thread's device, such as "NVIDIA H200, sm_90". On another kind of device, the
  /// last bits of results may differ. Throws InputError if there is no usable device.
  static std::string kind();
  /// Return a device's UUID as nvidia-smi prints it, and its address on the PCI bus, such as "0000:1b:00.0". Create no
  /// context. Throw an Error if there is no such device.
  /// @{
  static std::string uuid(int index);
  static std::string bus_id(int index);
  /// @}

  /// Allocates zeroed memory, aligned to 256 bytes, on the calling thread's device. Throws MemoryError, which reports
  /// the free bytes.
  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);
  /// In debug builds, waits for the device and fills released memory with NaN; otherwise does nothing.
  static void poison(std::byte* data, std::int64_t bytes);
  static void unpoison(std::byte* data, std::int64_t bytes);  ///< does nothing, except when tests emulate the device
  static std::byte* unbacked(std::int64_t) { return nullptr; }

  /// Returns whether `capture` is possible: not in debug builds, in which the host waits to fill released memory with
  /// NaN.
  static bool can_capture();
  /// Captures a CUDA graph (see device::Captures). Throws InputError unless can_capture().
  static Graph capture(Queue& queue, const std::function<void()>& work);

  // Operations that communicators enqueue (tessera/fsdp/device/device.hpp).
  /// Copies between any two of device memory, pinned and pageable host memory. The host waits if one of them is
  /// pageable.
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes);
  static void round(Queue&, const float* from, DType wire, std::int64_t count, std::byte* to);
  /// Sums up to most_parts parts; see tessera/fsdp/device/device.hpp.
  static void sum_in_order(Queue&, std::span<const std::byte* const> parts, DType stored, DType wire,
                           std::int64_t count, Write write, float* sum);
};

/// A point in a queue's work. A default-constructed event has happened. Copies share one cudaEvent_t, which returns to
/// its queue for reuse when the last copy is destroyed.
class Cuda::Event {
 public:
  Event() = default;
  bool happened() const;
  void* native() const { return handle_.get(); }  ///< a cudaEvent_t, or nullptr

 private:
  friend class Queue;
  std::shared_ptr<void> handle_;
};

/// A CUDA stream: its work runs in order, concurrently with other queues. Use it from one host thread.
class Cuda::Queue {
 public:
  /// Makes a stream on the calling thread's device. `name` labels it in traces and errors.
  explicit Queue(std::string_view name, Priority priority = Priority::usual);
  /// Makes a queue from the caller's stream, a cudaStream_t of the calling thread's device. The caller still owns the
  /// stream, which must outlive the queue. Throws InputError for the default stream, which other streams wait for.
  static Queue borrow(void* stream, std::string_view name = "borrowed");

  Event record();
  void wait(const Event& event);
  /// Blocks the host until all enqueued work is done. Throws if a kernel has failed.
  void synchronize();

  const std::string& name() const { return name_; }  ///< the name given at construction
  void* native() const { return handle_.get(); }     ///< a cudaStream_t

 private:
  class Events;
  Queue(std::shared_ptr<void> handle, std::string_view name);

  std::shared_ptr<void> handle_;
  std::shared_ptr<Events> events_;  ///< pool that is shared with events, which may outlive the queue
  std::string name_;
};

/// A captured CUDA graph, on the device that it was captured on. A default-constructed one is empty.
class Cuda::Graph {
 public:
  Graph() = default;
  void launch(Queue& queue) const;

 private:
  friend struct Cuda;
  std::shared_ptr<void> handle_;  ///< a cudaGraphExec_t
};

/// The planner of scratch sizes, which depend only on the problem.
class Cuda::Planner {
 public:
  explicit Planner(int = 1) {}  ///< ignores the number of host threads
  int threads() const { return 1; }
};

/// A rank's compute stream. All scratch, including cuBLASLt's workspace, comes from `arena`; dry runs can compute its
/// size (src/fsdp/device/cuda/scratch.hpp).
class Cuda::Stream : public Queue, public Planner {
 public:
  /// Ignores `threads`. With `plain`, or TESSERA_CUDA_PLAIN=1 in the environment, every operation uses its simplest
  /// kernel (one element per thread), as a reference for the other kernels. TESSERA_CUDA_ATTENTION=own never uses cuDNN
  /// for attention; =cudnn throws an error with the reason if cuDNN does not support an attention call.
  explicit Stream(Arena& arena, int threads = 1, bool plain = false);
  Stream(Stream&&) noexcept;
  ~Stream();

  Arena& arena() const { return *arena_; }
  bool plain() const { return plain_; }  ///< whether the stream uses the simplest kernels
  Counters counters;

  struct Cache;  ///< handles of cuBLASLt and cuDNN, with their plans by problem
  Cache& cache() const { return *cache_; }

 private:
  Arena* arena_;
  bool plain_;
  std::unique_ptr<Cache> cache_;
};

template <>
inline constexpr bool computes_in<Cuda, f16> = true;

// ---- Operations: src/fsdp/device/cuda/, with the same meaning as on the CPU. T is float, bf16 or f16. ----
// Scratch sizes are in src/fsdp/device/cuda_scratch.cpp, which needs no CUDA, so that dry runs work on any machine.

FSDP_RUNS_OPERATIONS(Cuda)
FSDP_RUNS_IN_SCRATCH(Cuda, AdamWStep)
FSDP_RUNS_IN_SCRATCH(Cuda, CodedAdamWStep)

/// Pinned host memory. The optimizer's kernels access it over the bus.
template <>
struct HostOffload<Cuda> : Cuda {
  static constexpr bool host_memory = true;
  using Arena = device::Arena<HostOffload>;

  static std::byte* allocate(std::int64_t bytes);
  static void deallocate(std::byte* data, std::int64_t bytes);

  template <class T>
  static void transfer(Cuda::Stream&, Cuda::Queue& queue, Tensor<const T> from, Tensor<T> to) {
    device::move<Cuda>(queue, from.data(), to.data(), from.numel());
  }
};

}  // namespace fsdp::device
