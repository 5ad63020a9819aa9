// SPDX-License-Identifier: Apache-2.0
/// @file
/// A simulated machine whose GPUs are threads of the host; shared by the fakes of CUDA's libraries.
///
/// A stream is a thread that does its work in order; an event is a point in it. Device memory is host memory, filled
/// with garbage. Documented rules are enforced: a call that breaks one returns CUDA's error, and a problem is recorded
/// if the program may miss that error. A host thread that blocks for longer than `patience` is a problem too, so that a
/// hang ends a test.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace fsdp::testing::cuda_host {

using Work = std::function<void()>;

/// An event that happens once.
class Point {
 public:
  void happen();
  bool happened() const;
  /// Waits until it happens. Returns false if that took longer than `limit`.
  bool wait(std::chrono::milliseconds limit) const;

 private:
  struct State;
  std::shared_ptr<State> state_ = make();
  static std::shared_ptr<State> make();
};

class Stream;
class Capture;

/// The object behind a cudaGraph_t, or behind a cudaGraphExec_t instantiated from it.
struct Graph {
  std::vector<Work> nodes;                   ///< in a valid sequential order
  std::vector<Work> launches;                ///< work of the host at a launch of the graph, under Machine::mutex
  std::vector<std::shared_ptr<void>> holds;  ///< released when the graph and its executables are destroyed
  int priority = 0;                          ///< the highest priority of the captured streams
};

/// The object behind a cudaEvent_t.
struct Event {
  int device = 0;
  Point point = {};
  bool recorded = false;
  std::weak_ptr<Capture> capture = {};      ///< the capture in which it was last recorded
  std::map<const Stream*, int> knows = {};  ///< number of nodes of that capture before the event, by stream
};

struct Block {
  std::size_t bytes = 0;
  int device = 0;
  bool pinned = false;  ///< pinned host memory instead of device memory
};

class Machine {
 public:
  static Machine& instance();

  /// Callbacks for allocations, which the emulation of kernels sets.
  struct Watch {
    void (*add)(const std::byte* data, std::size_t bytes) = nullptr;
    void (*remove)(const std::byte* data) = nullptr;
  };
  Watch watch;

  /// Resets to the state before the first call, with `gpus` GPUs. Kernels that wait for peers end.
  void reset(int gpus);

  // ---- Controls for tests
  void (*tell)(const std::string& problem) = nullptr;  ///< called at once, for programs that do not query problems
  std::chrono::milliseconds patience{3000};
  std::size_t device_bytes = std::size_t{1} << 31;
  int first_gpu = 0;                    ///< number of the machine's GPU that this process sees as device 0
  int driver_version = CUDART_VERSION;  ///< newest CUDA version that the driver supports
  /// The nth call of this function from now on does nothing and returns `error`; functions of other libraries return
  /// their own error code.
  void fail(const std::string& function, cudaError_t error, int nth = 1);
  bool will_fail() const { return !copy_of(faults_).empty(); }  ///< whether such a call is still to come
  /// From now on, every call that needs the device returns `error`, as after a fault of a kernel.
  void break_device(int device, cudaError_t error);

  // ---- Observations for tests
  std::vector<std::string> take_problems();
  /// Devices on which this process has created a context.
  std::set<int> contexts() const { return copy_of(contexts_); }
  /// Number of unreleased objects by kind; kinds without any are omitted.
  std::map<std::string, int> held() const { return copy_of(held_); }
  std::map<std::string, int> calls() const { return copy_of(calls_); }  ///< number of calls by function
  std::size_t most_bytes() const { return copy_of(most_bytes_); }       ///< the highest memory use of any device
  std::multiset<int> priorities() const;                                ///< of all existing streams

  // ---- For the fakes
  void problem(const std::string& text);
  /// Begins a call. `needs_context`: creates a context on the thread's device. Returns the error that the call must
  /// return.
  cudaError_t enter(const char* function, bool needs_context);
  /// Ends a call: sets the result of cudaGetLastError.
  static cudaError_t leave(cudaError_t result);
  int gpus() const { return gpus_; }
  int device() const;       ///< current device of the calling thread
  void select(int device);  ///< for the calling thread
  /// Changes with every `reset`; work of an earlier generation should stop.
  std::uint64_t generation() const { return copy_of(generation_); }

  std::shared_ptr<Stream> make_stream(int priority);
  std::shared_ptr<Stream> find(cudaStream_t stream);  ///< null if it does not exist
  bool forget(cudaStream_t stream);
  /// Enqueues work in the stream, or adds it to the graph that is being captured there.
  cudaError_t submit(cudaStream_t stream, Work work);
  /// The calling thread waits for a stream, or for all streams of its device; `what` is its call.
  cudaError_t wait_for(cudaStream_t stream, const char* what);
  cudaError_t wait_for_device(const char* what);
  /// Whether no stream of the calling thread's device has work left.
  bool idle();

  void* allocate(std::size_t bytes, bool pinned);
  bool free(void* data, bool pinned);
  std::size_t used_bytes(int device) const;
  /// The block that contains [data, data + bytes), or a block of 0 bytes if `data` is pageable. Null if the range
  /// exceeds the block in which it begins.
  const Block* block_of(const void* data, std::size_t bytes) const;
  /// Whether [data, data + bytes) lies in a block that CUDA has given.
  bool is_allocated(const void* data, std::size_t bytes) const;

  void hold(const std::string& kind, int by);
  /// Hand out an object as a library's handle, and take it back.
  /// @{
  template <class Handle, class Object>
  void give(Handle* handle, Object* made, const char* kind) {
    *handle = reinterpret_cast<Handle>(made);
    hold(kind, 1);
  }
  template <class Object, class Handle>
  void take_back(Handle handle, const char* kind) {
    delete reinterpret_cast<Object*>(handle);
    hold(kind, -1);
  }
  /// @}

  /// The capture that the calling thread has begun, which forbids some calls; null if there is none.
  std::shared_ptr<Capture> capture_of_thread() const;
  void begin_capture(const std::shared_ptr<Stream>& stream);
  void end_capture(const std::shared_ptr<Capture>& capture);

  mutable std::recursive_mutex mutex;  ///< of streams, events and captures

 private:
  Machine() = default;
  template <class T>
  T copy_of(const T& member) const {
    const std::lock_guard lock(mutex);
    return member;
  }
  cudaError_t wait_for_streams(const std::vector<std::shared_ptr<Stream>>& streams, const char* what);

  struct Fault {
    cudaError_t error;
    int left;  ///< calls until the fault
  };
  int gpus_ = 1;
  std::uint64_t generation_ = 0;
  std::vector<std::string> problems_;
  std::set<int> contexts_;
  std::map<int, cudaError_t> broken_;
  std::map<std::string, int> held_, calls_;
  std::map<std::string, Fault> faults_;
  std::size_t most_bytes_ = 0;
  std::map<const std::byte*, Block> blocks_;
  std::map<cudaStream_t, std::shared_ptr<Stream>> streams_;
  std::map<int, std::shared_ptr<Stream>> default_streams_;
};

/// A capture that has begun and not ended.
class Capture {
 public:
  Capture(Stream* origin, std::shared_ptr<Graph> graph) : origin_(origin), graph_(std::move(graph)) {}
  void add(Stream* stream, Work work);
  void join(Stream* stream, const std::map<const Stream*, int>& knows);
  const std::map<const Stream*, int>& knows(const Stream* stream) { return knows_[stream]; }
  /// Whether the origin stream has waited for all captured work.
  bool joined();
  Stream* origin() const { return origin_; }
  const std::set<Stream*>& streams() const { return streams_; }
  const std::shared_ptr<Graph>& graph() const { return graph_; }

  bool invalid = false;

 private:
  Stream* origin_;
  std::shared_ptr<Graph> graph_;
  std::set<Stream*> streams_ = {origin_};
  std::map<const Stream*, int> counts_;
  std::map<const Stream*, std::map<const Stream*, int>> knows_;
};

/// The object behind a cudaStream_t.
class Stream {
 public:
  static constexpr int highest = -5;  ///< priority; 0 is the lowest

  Stream(int device, int priority) : device_(device), priority_(priority) {}
  /// Starts the stream's thread, which runs until `close` and the end of its work.
  static std::shared_ptr<Stream> make(int device, int priority = 0);
  int device() const { return device_; }
  int priority() const { return priority_; }
  void push(Work work);
  /// The point happens after all pushed work; it does not count as work.
  void push(const Point& point);
  void close();
  bool idle() const;

  std::shared_ptr<Capture> capture;  ///< guarded by Machine::mutex

 private:
  struct Queue;
  int device_, priority_;
  std::shared_ptr<Queue> queue_;
};

inline Machine& machine() { return Machine::instance(); }

}  // namespace fsdp::testing::cuda_host
