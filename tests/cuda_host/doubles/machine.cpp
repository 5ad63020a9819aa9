// SPDX-License-Identifier: Apache-2.0
#include "machine.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::testing::cuda_host {
namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local std::weak_ptr<Capture> thread_capture;
thread_local std::uint64_t thread_generation = 0;

}  // namespace

struct Point::State {
  mutable std::mutex mutex;
  mutable std::condition_variable changed;
  bool happened = false;
};
std::shared_ptr<Point::State> Point::make() { return std::make_shared<State>(); }
void Point::happen() {
  const std::lock_guard lock(state_->mutex);
  state_->happened = true;
  state_->changed.notify_all();
}
bool Point::happened() const {
  const std::lock_guard lock(state_->mutex);
  return state_->happened;
}
bool Point::wait(std::chrono::milliseconds limit) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [&] { return state_->happened; });
}

// ---- Streams

struct Stream::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  struct Task {
    Work work;
    bool counts;  ///< whether it counts as work
  };
  std::deque<Task> work;
  bool closing = false;
  bool running = false;
};

std::shared_ptr<Stream> Stream::make(int device, int priority) {
  const auto made = std::make_shared<Stream>(device, priority);
  made->queue_ = std::make_shared<Queue>();
  std::thread([queue = made->queue_] {
    for (;;) {
      std::unique_lock lock(queue->mutex);
      queue->changed.wait(lock, [&] { return queue->closing || !queue->work.empty(); });
      if (queue->work.empty()) return;
      const Queue::Task next = std::move(queue->work.front());
      queue->work.pop_front();
      queue->running = next.counts;
      lock.unlock();
      next.work();
      lock.lock();
      queue->running = false;
    }
  }).detach();
  return made;
}
void Stream::push(Work work) {
  const std::lock_guard lock(queue_->mutex);
  queue_->work.push_back({std::move(work), true});
  queue_->changed.notify_one();
}
void Stream::push(const Point& point) {
  const std::lock_guard lock(queue_->mutex);
  queue_->work.push_back({[own = point]() mutable { own.happen(); }, false});
  queue_->changed.notify_one();
}
void Stream::close() {
  const std::lock_guard lock(queue_->mutex);
  queue_->closing = true;
  queue_->changed.notify_one();
}

bool Stream::idle() const {
  const std::lock_guard lock(queue_->mutex);
  const auto counts = [](const Queue::Task& task) { return task.counts; };
  return !queue_->running && std::none_of(queue_->work.begin(), queue_->work.end(), counts);
}

// ---- Captures

void Capture::add(Stream* stream, Work work) {
  graph_->nodes.push_back(std::move(work));
  graph_->priority = std::min(graph_->priority, stream->priority());
  knows_[stream][stream] = ++counts_[stream];
}
void Capture::join(Stream* stream, const std::map<const Stream*, int>& knows) {
  streams_.insert(stream);
  for (const auto& [other, count] : knows) knows_[stream][other] = std::max(knows_[stream][other], count);
}
bool Capture::joined() {
  for (const auto& [stream, count] : counts_)
    if (stream != origin_ && knows_[origin_][stream] < count) return false;
  return true;
}

// ---- The machine

Machine& Machine::instance() {
  static auto* const machine = new Machine;  // threads of streams may outlive main
  return *machine;
}

void Machine::reset(int gpus) {
  const std::lock_guard lock(mutex);
  gpus_ = gpus;
  ++generation_;
  patience = std::chrono::milliseconds(3000);
  device_bytes = std::size_t{1} << 31;
  first_gpu = 0;
  driver_version = CUDART_VERSION;
  problems_.clear();
  contexts_.clear();
  broken_.clear();
  held_.clear();
  calls_.clear();
  faults_.clear();
  most_bytes_ = 0;
  blocks_.clear();  // memory that was not freed stays with its owner
  for (auto& [device, stream] : default_streams_) stream->close();
  default_streams_.clear();
  streams_.clear();
}

void Machine::fail(const std::string& function, cudaError_t error, int nth) {
  const std::lock_guard lock(mutex);
  faults_[function] = {error, nth};
}
void Machine::break_device(int device, cudaError_t error) {
  const std::lock_guard lock(mutex);
  broken_[device] = error;
}

std::vector<std::string> Machine::take_problems() {
  const std::lock_guard lock(mutex);
  return std::exchange(problems_, {});
}

std::multiset<int> Machine::priorities() const {
  const std::lock_guard lock(mutex);
  std::multiset<int> found;
  for (const auto& [handle, stream] : streams_) found.insert(stream->priority());
  return found;
}

void Machine::problem(const std::string& text) {
  const std::lock_guard lock(mutex);
  problems_.push_back(text);
  if (tell != nullptr) tell(text);
}

cudaError_t Machine::enter(const char* function, bool needs_context) {
  const std::lock_guard lock(mutex);
  ++calls_[function];
  if (const auto fault = faults_.find(function); fault != faults_.end() && --fault->second.left == 0) {
    const cudaError_t error = fault->second.error;
    faults_.erase(fault);
    return error;
  }
  if (!needs_context) return cudaSuccess;
  if (gpus_ == 0) return cudaErrorNoDevice;
  contexts_.insert(device());
  const auto broken = broken_.find(device());
  return broken == broken_.end() ? cudaSuccess : broken->second;
}

cudaError_t Machine::leave(cudaError_t result) {
  if (result != cudaSuccess && result != cudaErrorNotReady) last_error = result;
  return result;
}

int Machine::device() const {
  if (std::exchange(thread_generation, generation_) != generation_) current_device = 0;
  return current_device;
}

void Machine::select(int device) {
  thread_generation = generation_;
  current_device = device;
}

std::shared_ptr<Stream> Machine::make_stream(int priority) {
  const auto made = Stream::make(device(), priority);
  const std::lock_guard lock(mutex);
  streams_[reinterpret_cast<cudaStream_t>(made.get())] = made;
  return made;
}
std::shared_ptr<Stream> Machine::find(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  if (stream == nullptr) {
    auto& own = default_streams_[device()];
    if (!own) own = Stream::make(device());
    return own;
  }
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}
bool Machine::forget(cudaStream_t stream) {
  const std::lock_guard lock(mutex);
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return false;
  found->second->close();
  streams_.erase(found);
  return true;
}

cudaError_t Machine::submit(cudaStream_t stream, Work work) {
  const std::lock_guard lock(mutex);
  const auto found = find(stream);
  if (!found) return cudaErrorInvalidResourceHandle;
  if (!found->capture)
    found->push(std::move(work));
  else if (found->capture->invalid)
    return cudaErrorStreamCaptureInvalidated;
  else
    found->capture->add(found.get(), std::move(work));
  return cudaSuccess;
}

cudaError_t Machine::wait_for_streams(const std::vector<std::shared_ptr<Stream>>& streams, const char* what) {
  const auto limit = std::chrono::steady_clock::now() + patience;
  for (const auto& stream : streams) {
    const Point end;
    stream->push(end);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    if (end.wait(left)) continue;
    problem(message("the host is blocked in ", what, ", which has no deadline"));
    return cudaErrorLaunchTimeout;
  }
  const std::lock_guard lock(mutex);
  const auto broken = broken_.find(device());
  return broken == broken_.end() ? cudaSuccess : broken->second;
}
cudaError_t Machine::wait_for(cudaStream_t stream, const char* what) {
  const auto found = find(stream);
  if (!found) return cudaErrorInvalidResourceHandle;
  return wait_for_streams({found}, what);
}
cudaError_t Machine::wait_for_device(const char* what) {
  std::vector<std::shared_ptr<Stream>> all;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [handle, stream] : streams_)
      if (stream->device() == device()) all.push_back(stream);
    if (const auto own = default_streams_.find(device()); own != default_streams_.end()) all.push_back(own->second);
  }
  return wait_for_streams(all, what);
}

bool Machine::idle() {
  const std::lock_guard lock(mutex);
  for (const auto& [handle, stream] : streams_)
    if (stream->device() == device() && !stream->idle()) return false;
  return true;
}

// ---- Memory

void* Machine::allocate(std::size_t bytes, bool pinned) {
  const std::lock_guard lock(mutex);
  if (!pinned && used_bytes(device()) + bytes > device_bytes) return nullptr;
  // Blocks are a kilobyte apart, so that a range that leaves its block is detected.
  auto* const data = static_cast<std::byte*>(std::aligned_alloc(256, (bytes + 1024 + 255) / 256 * 256));
  if (data == nullptr) return nullptr;
  std::memset(data, 0xa5, bytes);
  blocks_[data] = {.bytes = bytes, .device = device(), .pinned = pinned};
  most_bytes_ = std::max(most_bytes_, used_bytes(device()));
  if (watch.add != nullptr) watch.add(data, bytes);
  hold(pinned ? "pinned blocks" : "device blocks", 1);
  return data;
}
bool Machine::free(void* data, bool pinned) {
  const std::lock_guard lock(mutex);
  const auto found = blocks_.find(static_cast<std::byte*>(data));
  if (found == blocks_.end() || found->second.pinned != pinned) return false;
  if (watch.remove != nullptr) watch.remove(found->first);
  std::memset(data, 0x5a, found->second.bytes);
  blocks_.erase(found);
  std::free(data);
  hold(pinned ? "pinned blocks" : "device blocks", -1);
  return true;
}
std::size_t Machine::used_bytes(int device) const {
  std::size_t used = 0;
  for (const auto& [data, block] : blocks_)
    if (!block.pinned && block.device == device) used += block.bytes;
  return used;
}
const Block* Machine::block_of(const void* data, std::size_t bytes) const {
  static const Block pageable;
  const std::lock_guard lock(mutex);
  const auto* const begin = static_cast<const std::byte*>(data);
  auto next = blocks_.upper_bound(begin);
  if (next == blocks_.begin()) return &pageable;
  const auto& [start, block] = *--next;
  if (begin >= start + block.bytes + 1024) return &pageable;
  return begin + bytes <= start + block.bytes ? &block : nullptr;
}
bool Machine::is_allocated(const void* data, std::size_t bytes) const {
  const Block* const block = block_of(data, bytes);
  return block != nullptr && block->bytes > 0;
}

void Machine::hold(const std::string& kind, int by) {
  const std::lock_guard lock(mutex);
  if ((held_[kind] += by) == 0) held_.erase(kind);
}

// ---- Captures of threads

std::shared_ptr<Capture> Machine::capture_of_thread() const { return thread_capture.lock(); }

void Machine::begin_capture(const std::shared_ptr<Stream>& stream) {
  const std::lock_guard lock(mutex);
  stream->capture = std::make_shared<Capture>(stream.get(), std::make_shared<Graph>());
  thread_capture = stream->capture;
}
void Machine::end_capture(const std::shared_ptr<Capture>& capture) {
  const std::lock_guard lock(mutex);
  for (const auto& [handle, stream] : streams_)
    if (stream->capture == capture) stream->capture = nullptr;
  thread_capture.reset();
}

}  // namespace fsdp::testing::cuda_host

// Thread-local errors.
extern "C" cudaError_t cudaGetLastError() { return std::exchange(fsdp::testing::cuda_host::last_error, cudaSuccess); }
extern "C" cudaError_t cudaPeekAtLastError() { return fsdp::testing::cuda_host::last_error; }
extern "C" cudaError_t cudaGetDevice(int* device) {
  const auto& machine = fsdp::testing::cuda_host::Machine::instance();
  *device = machine.device();
  return cudaSuccess;
}
