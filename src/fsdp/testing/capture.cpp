// SPDX-License-Identifier: Apache-2.0
#include "capture.hpp"

#include <condition_variable>
#include <mutex>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::testing {
namespace {

thread_local WorkCapture* capturing = nullptr;

/// Guards the captured points for which ranks wait.
std::mutex points_mutex;
std::condition_variable recorded;

}  // namespace

WorkCapture::WorkCapture(WorkQueue& origin) : origin_(origin.id()) {
  queues_[origin_] = {.name = origin.name(), .clock = {}, .own = {}};
}

WorkCapture* WorkCapture::of_this_host() { return capturing; }

void WorkCapture::refuse(const char* what) { require<Error>(capturing == nullptr, what, " while a graph is captured"); }

void WorkCapture::capture(const std::function<void()>& ask) {
  refuse("a graph is captured");
  capturing = this;
  try {
    ask();
  } catch (...) {
    capturing = nullptr;
    throw;
  }
  capturing = nullptr;
  const Clock& end = queues_.at(origin_).clock;
  for (auto& [id, queue] : queues_) {
    require<Error>(end.knows(queue.clock), "the graph's first queue has not waited for ", queue.name);
    if (id != origin_) queue.own = std::make_shared<WorkQueue>(queue.name.substr(0, queue.name.rfind(' ')) + " graph");
  }
}

WorkCapture::Queue& WorkCapture::part(WorkQueue& queue, const char* what) {
  const auto found = queues_.find(queue.id());
  require<Error>(found != queues_.end(), what, " on ", queue.name(),
                 ", which waits for nothing of the graph that is captured and is no part of it");
  return found->second;
}

QueuedEvent WorkCapture::record(WorkQueue& queue) {
  QueuedEvent event;
  event.captured_ = std::make_shared<CapturedPoint>();
  event.captured_->clock = part(queue, "an event").clock;
  calls_.push_back({queue.id(), [point = event.captured_](WorkQueue& own, std::size_t) {
                      const std::lock_guard lock(points_mutex);
                      point->by_launch.push_back(own.record());
                      recorded.notify_all();
                    }});
  return event;
}

void WorkCapture::wait(WorkQueue& queue, const QueuedEvent& event) {
  if (event.state_ == nullptr && event.captured_ == nullptr) return;
  require<Error>(event.captured_ != nullptr, queue.name(),
                 " waits for an event of before, while a graph is captured: no graph can hold that");
  Queue& own = queues_.try_emplace(queue.id(), Queue{.name = queue.name(), .clock = {}, .own = {}}).first->second;
  own.clock.join(event.captured_->clock);
  calls_.push_back({queue.id(), [point = event.captured_](WorkQueue& waiting, std::size_t launch) {
                      std::unique_lock lock(points_mutex);
                      recorded.wait(lock, [&] { return point->by_launch.size() > launch; });
                      const QueuedEvent now = point->by_launch[launch];
                      lock.unlock();
                      waiting.wait(now);
                    }});
}

void WorkCapture::submit(WorkQueue& queue, const char* operation, std::span<const Access> accesses,
                         const std::function<void(device::Cpu::Stream&)>& work) {
  part(queue, operation).clock.advance(queue.id());
  calls_.push_back({queue.id(), [operation, work, list = std::vector<Access>(accesses.begin(), accesses.end())](
                                    WorkQueue& own, std::size_t) { own.submit(operation, list, work); }});
}

void WorkCapture::at_launch(WorkQueue& queue, const std::function<void()>& work) {
  part(queue, "work of the host");
  calls_.push_back({queue.id(), [work](WorkQueue&, std::size_t) { work(); }});
}

void WorkCapture::launch(WorkQueue& origin) {
  refuse("a graph is launched");
  require<Error>(origin.id() == origin_, "a graph is launched on another queue than it was captured on");
  for (const Asked& asked : calls_) {
    Queue& queue = queues_.at(asked.queue);
    asked.call(queue.own == nullptr ? origin : *queue.own, launches_);
  }
  ++launches_;
}

void WorkGraph::launch(WorkQueue& queue) const { kept_->launch(queue); }

}  // namespace fsdp::testing
