// SPDX-License-Identifier: Apache-2.0
/// @file
/// A machine with GPUs that are threads of the host: what the doubles of CUDA's libraries share.
///
/// A stream is a thread that does its work in order; an event is a point in it. Memory is the host's, filled with
/// garbage. Documented rules are enforced: a call that breaks one returns CUDA's error, and the rule is kept in
/// `problems` where a program may not see that error. A host that blocks longer than `patience` is a problem too, so
/// that a hang ends a test.
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
#include <string_view>
#include <vector>

namespace fsdp::testing::cuda_host {

using Work = std::function<void()>;

/// Happens once.
class Point {
 public:
  void happen();
  bool happened() const;
  /// False where that took longer than `limit`.
  bool wait(std::chrono::milliseconds limit) const;

 private:
  struct State;
  std::shared_ptr<State> state_ = make();
  static std::shared_ptr<State> make();
};

class Stream;
class Capture;

/// What a cudaGraph_t, or a cudaGraphExec_t made of it, points to.
struct Graph {
  std::vector<Work> nodes;                   ///< in an order that they may run in, one after the other
  std::vector<Work> launches;                ///< what the host does as it launches the graph, with Machine::mutex
  std::vector<std::shared_ptr<void>> holds;  ///< let go when graph and executables are destroyed
  int priority = 0;                          ///< the highest of the streams that it was captured on
};

/// What a cudaEvent_t points to.
struct Event {
  int device = 0;
  Point point = {};
  bool recorded = false;
  std::weak_ptr<Capture> capture = {};      ///< it was last recorded in
  std::map<const Stream*, int> knows = {};  ///< nodes of that capture before it, by stream
};

struct Block {
  std::size_t bytes = 0;
  int device = 0;
  bool pinned = false;  ///< host memory
};

class Machine {
 public:
  static Machine& instance();

  /// Who is told of memory: what runs kernels sets it.
  struct Watch {
    void (*add)(const std::byte* data, std::size_t bytes) = nullptr;
    void (*remove)(const std::byte* data) = nullptr;
  };
  Watch watch;

  /// As before the first call, with so many GPUs. Kernels that wait for others end.
  void reset(int gpus);

  // ---- What tests set.
  void (*tell)(const std::string& problem) = nullptr;  ///< at once, where nobody can ask for problems
  std::chrono::milliseconds patience{3000};
  std::size_t device_bytes = std::size_t{1} << 31;
  /// The nth call of this function from now does nothing and returns `error`; those of other libraries, their own.
  void fail(const std::string& function, cudaError_t error, int nth = 1);
  bool will_fail() const;  ///< such a call is still to come
  /// From here on every call that needs the device returns `error`, as after a kernel's fault.
  void break_device(int device, cudaError_t error);

  // ---- What tests look at.
  std::vector<std::string> take_problems();
  std::set<int> contexts() const;            ///< devices that this process has memory on for its context
  std::map<std::string, int> held() const;   ///< objects by kind that were not given back; those of none are left out
  std::map<std::string, int> calls() const;  ///< by function
  std::size_t most_bytes() const;            ///< that a device has had in use
  std::multiset<int> priorities() const;     ///< of the streams that there are

  // ---- What doubles use.
  void problem(const std::string& text);
  /// A call begins. `needs_context`: makes one on the thread's device. Returns the error that it must return.
  cudaError_t enter(const char* function, bool needs_context);
  /// As every call ends: what cudaGetLastError will find.
  static cudaError_t leave(cudaError_t result);
  int gpus() const { return gpus_; }
  int device() const;       ///< of the calling thread
  void select(int device);  ///< for the calling thread
  /// Whether work that began in such a generation should go on: false after `reset`.
  std::uint64_t generation() const;

  std::shared_ptr<Stream> make_stream(int priority);
  std::shared_ptr<Stream> find(cudaStream_t stream);  ///< null where there is none
  bool forget(cudaStream_t stream);
  /// Does the work after all that stands in the stream, or puts it into the graph that is captured there.
  cudaError_t submit(cudaStream_t stream, Work work);
  /// The calling thread waits for a stream, or for all of its device; `what` is its call.
  cudaError_t wait_for(cudaStream_t stream, const char* what);
  cudaError_t wait_for_device(const char* what);
  /// Whether no stream of the calling thread's device has work left.
  bool idle();

  void* allocate(std::size_t bytes, bool pinned);
  bool free(void* data, bool pinned);
  std::size_t used_bytes(int device) const;
  /// The block that [data, data + bytes) lies in, or one of no bytes where `data` is pageable. Nothing where it leaves
  /// the block it begins in.
  const Block* block_of(const void* data, std::size_t bytes) const;

  void hold(const std::string& kind, int by);

  /// The capture that the calling thread has begun and that no call may disturb; null where there is none.
  std::shared_ptr<Capture> capture_of_thread() const;
  void begin_capture(const std::shared_ptr<Stream>& stream);
  void end_capture(const std::shared_ptr<Capture>& capture);

  mutable std::recursive_mutex mutex;  ///< of streams, events and captures

 private:
  Machine() = default;
  cudaError_t wait_for_streams(const std::vector<std::shared_ptr<Stream>>& streams, const char* what);

  struct Fault {
    cudaError_t error;
    int left;  ///< calls until it
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

/// A capture that was begun and not ended.
class Capture {
 public:
  Capture(Stream* origin, std::shared_ptr<Graph> graph) : origin_(origin), graph_(std::move(graph)) {}
  void add(Stream* stream, Work work);
  void join(Stream* stream, const std::map<const Stream*, int>& knows);
  const std::map<const Stream*, int>& knows(const Stream* stream) { return knows_[stream]; }
  /// Whether the origin has waited for everything.
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

/// What a cudaStream_t points to.
class Stream {
 public:
  static constexpr int highest = -5;  ///< priority; 0 is the lowest

  Stream(int device, int priority) : device_(device), priority_(priority) {}
  /// Starts its thread, which lives until `close` and the end of its work.
  static std::shared_ptr<Stream> make(int device, int priority = 0);
  int device() const { return device_; }
  int priority() const { return priority_; }
  void push(Work work);
  /// Happens after all that was pushed; is no work itself.
  void push(const Point& point);
  void close();
  bool idle() const;

  std::shared_ptr<Capture> capture;  ///< with Machine::mutex

 private:
  struct Queue;
  int device_, priority_;
  std::shared_ptr<Queue> queue_;
};

inline Machine& machine() { return Machine::instance(); }

}  // namespace fsdp::testing::cuda_host
