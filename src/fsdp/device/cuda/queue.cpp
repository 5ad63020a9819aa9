// SPDX-License-Identifier: Apache-2.0
/// @file
/// Streams, events and graphs, and their names in profilers.
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCudaRt.h>

#include <tessera/fsdp/device/cuda.hpp>

#include "runtime.hpp"

namespace fsdp::device {

using cuda::require_success;

CudaRange::CudaRange(const char* name) { nvtxRangePushA(name); }
CudaRange::~CudaRange() { nvtxRangePop(); }

bool Cuda::Event::happened() const {
  if (!handle_) return true;
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(handle_.get()));
  if (status == cudaErrorNotReady) return false;
  require_success(status, "asking for an event");
  return true;
}

/// A queue's pool of unused events, since creating an event takes longer than recording one. An event may be reused
/// immediately, even if queues still wait for it: a wait refers to the preceding record.
class Cuda::Queue::Events {
 public:
  ~Events() {
    for (const cudaEvent_t event : unused_) cudaEventDestroy(event);
  }

  cudaEvent_t take() {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      const cudaEvent_t event = unused_.back();
      unused_.pop_back();
      return event;
    }
    unused_.reserve(made_ + 1);  // so that give_back does not allocate
    cudaEvent_t event = nullptr;
    require_success(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
    ++made_;
    return event;
  }
  void give_back(cudaEvent_t event) noexcept {
    const std::lock_guard lock(mutex_);
    unused_.push_back(event);
  }

 private:
  std::mutex mutex_;  ///< any thread may destroy events
  std::vector<cudaEvent_t> unused_;
  std::size_t made_ = 0;
};

Cuda::Queue::Queue(std::string_view name, Priority priority) : events_(std::make_shared<Events>()), name_(name) {
  const std::string problem = cuda_problem();
  require<InputError>(problem.empty(), "cuda: ", problem);
  int usual = 0, first = 0;
  require_success(cudaDeviceGetStreamPriorityRange(&usual, &first), "asking for streams' priorities");
  cudaStream_t stream = nullptr;
  // Non-blocking, because a default stream would wait for work that other code enqueues on the null stream.
  require_success(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::first ? first : usual),
      "making a stream");
  handle_ = std::shared_ptr<void>(stream, [](void* made) { cudaStreamDestroy(static_cast<cudaStream_t>(made)); });
  nvtxNameCudaStreamA(stream, name_.c_str());
}

Cuda::Queue::Queue(std::shared_ptr<void> handle, std::string_view name)
    : handle_(std::move(handle)), events_(std::make_shared<Events>()), name_(name) {}

Cuda::Queue Cuda::Queue::borrow(void* stream, std::string_view name) {
  require<InputError>(stream != nullptr,
                      "cuda: the default stream is given as a queue, and other streams wait for it; ",
                      "make one with cudaStreamNonBlocking");
  return {std::shared_ptr<void>(stream, [](void*) {}), name};
}

Cuda::Event Cuda::Queue::record() {
  const cudaEvent_t event = events_->take();
  Event made;
  made.handle_ =
      std::shared_ptr<void>(event, [events = events_](void* old) { events->give_back(static_cast<cudaEvent_t>(old)); });
  require_success(cudaEventRecord(event, static_cast<cudaStream_t>(native())), "recording an event");
  return made;
}

void Cuda::Queue::wait(const Event& event) {
  if (event.native() == nullptr) return;
  require_success(cudaStreamWaitEvent(static_cast<cudaStream_t>(native()), static_cast<cudaEvent_t>(event.native()), 0),
                  "waiting for an event");
}

void Cuda::Queue::synchronize() {
  require_success(cudaStreamSynchronize(static_cast<cudaStream_t>(native())), "waiting for a stream");
}

bool Cuda::can_capture() { return !cuda::fills_released_memory; }

Cuda::Graph Cuda::capture(Queue& queue, const std::function<void()>& work) {
  require<InputError>(can_capture(),
                      "cuda: debug builds fill released memory with NaN while the host waits, which no graph can keep; "
                      "capture in a release build");
  const auto stream = static_cast<cudaStream_t>(queue.native());
  // Thread-local mode does not restrict other threads, such as NCCL's.
  require_success(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "beginning to capture a graph");
  std::exception_ptr failure;
  try {
    work();
  } catch (...) {
    failure = std::current_exception();
  }
  cudaGraph_t captured = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> owned(captured, cudaGraphDestroy);
  if (failure) std::rethrow_exception(failure);
  require_success(ended, "capturing a graph");
  cudaGraphExec_t made = nullptr;
  // Without the flag, the graph's kernels would have the priority of the stream on which it is launched.
  require_success(cudaGraphInstantiate(&made, captured, cudaGraphInstantiateFlagUseNodePriority),
                  "making a graph ready");
  Graph graph;
  graph.handle_ = std::shared_ptr<void>(
      made, [](void* old) { static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(old))); });
  return graph;
}

void Cuda::Graph::launch(Queue& queue) const {
  require_success(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(handle_.get()), static_cast<cudaStream_t>(queue.native())),
      "launching a graph");
}

void Cuda::move(Queue& queue, const std::byte* from, std::byte* to, std::int64_t bytes) {
  if (bytes == 0 || from == to) return;
  require_success(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault,
                                  static_cast<cudaStream_t>(queue.native())),
                  "copying memory");
}

}  // namespace fsdp::device
