// SPDX-License-Identifier: Apache-2.0
#include <support/queued/queue.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

namespace fsdp::test {
namespace {

/// Guards all queues and events: there are few, and they do little.
std::mutex mutex;
std::condition_variable changed;
std::atomic<bool> nothing_runs = false;

/// Of the host thread that makes queues: a rank. What it waited for is over before anything that it queues later.
thread_local Clock host;
thread_local std::int64_t waits_seen = 0;
thread_local std::int64_t wait_to_leave_out = -1;
thread_local std::string wait_left_out;

}  // namespace

struct QueuedEvent::State {
  Clock clock;
  std::string queue;
  std::thread::id host;
  bool happened = false;
};

bool QueuedEvent::happened() const {
  if (state_ == nullptr) return true;
  const std::lock_guard lock(mutex);
  return state_->happened;
}

struct WorkQueue::State {
  using Task = std::function<void(device::Cpu::Stream&)>;

  static inline std::set<State*> all;
  static inline std::size_t made = 0;

  State(std::string_view queue_name, std::size_t index)
      : name(std::string(queue_name) + ' ' + std::to_string(index)), id(index) {}

  void run() {
    constexpr std::int64_t scratch_bytes = 1 << 22;
    device::Ledger ledger;
    device::Cpu::Arena scratch(ledger, scratch_bytes);
    device::Cpu::Stream stream(scratch, 1);
    std::minstd_rand random(static_cast<unsigned>(id + 1));
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] { return closing || !tasks.empty(); });
      if (tasks.empty()) return;
      const Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      std::exception_ptr thrown;
      try {
        task(stream);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown) failure = thrown;
      ++done;
      changed.notify_all();
    }
  }

  void push(Task task) {
    const std::lock_guard lock(mutex);
    if (!thread.joinable()) thread = std::thread([this] { run(); });
    tasks.push_back(std::move(task));
    ++asked;
    changed.notify_all();
  }

  std::string name, last = "nothing";
  std::size_t id;
  Clock clock;
  std::deque<Task> tasks;
  std::uint64_t asked = 0, done = 0;
  bool closing = false;
  std::exception_ptr failure;
  std::thread thread;
};

WorkQueue::WorkQueue(std::string_view name) {
  std::unique_lock lock(mutex);
  const std::size_t id = State::made++;
  lock.unlock();
  state_ = std::make_shared<State>(name, id);
  lock.lock();
  State::all.insert(state_.get());
}

WorkQueue::WorkQueue(WorkQueue&&) noexcept = default;

WorkQueue::~WorkQueue() {
  if (state_ == nullptr) return;
  {
    const std::lock_guard lock(mutex);
    state_->closing = true;
    State::all.erase(state_.get());
    changed.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

QueuedEvent WorkQueue::record() {
  QueuedEvent event;
  event.state_ = std::make_shared<QueuedEvent::State>();
  event.state_->clock = state_->clock;
  event.state_->queue = state_->name + " after " + state_->last;
  event.state_->host = std::this_thread::get_id();
  event.state_->happened = nothing_runs;
  if (nothing_runs) return event;
  state_->push([point = event.state_](device::Cpu::Stream&) {
    const std::lock_guard lock(mutex);
    point->happened = true;
    changed.notify_all();
  });
  return event;
}

void WorkQueue::wait(const QueuedEvent& event) {
  state_->clock.join(host);
  if (event.state_ == nullptr || state_->clock.knows(event.state_->clock)) return;
  const bool counts = event.state_->host == std::this_thread::get_id() && !state_->name.starts_with("joins");
  if (counts && waits_seen++ == wait_to_leave_out) {
    wait_left_out = state_->name + ", after " + state_->last + ", waits for " + event.state_->queue;
    return;
  }
  state_->clock.join(event.state_->clock);
  if (nothing_runs) return;
  state_->push([point = event.state_](device::Cpu::Stream&) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return point->happened; });
  });
}

void WorkQueue::synchronize() {
  std::unique_lock lock(mutex);
  const std::uint64_t last = state_->asked;
  changed.wait(lock, [&] { return state_->done >= last; });
  host.join(state_->clock);
  if (state_->failure) std::rethrow_exception(std::exchange(state_->failure, nullptr));
}

void WorkQueue::submit(const char* operation, std::span<const Access> accesses,
                       std::function<void(device::Cpu::Stream&)> work) {
  state_->clock.join(host);
  const std::uint64_t position = state_->clock.advance(state_->id);
  const Moment moment{.queue = state_->id, .position = position, .what = state_->name + ": " + operation};
  for (const Access& access : accesses)
    MemoryOrder::instance().touch(access.begin, access.bytes, access.writes, moment, state_->clock);
  state_->last = operation;
  if (!nothing_runs) state_->push(std::move(work));
}

void WorkQueue::drain_all() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [] {
    for (const State* state : State::all)
      if (state->done < state->asked) return false;
    return true;
  });
}

void WorkQueue::leave_out_wait(std::int64_t n) {
  waits_seen = 0;
  wait_to_leave_out = n;
  wait_left_out.clear();
}
void WorkQueue::check_only(bool on) { nothing_runs = on; }
std::int64_t WorkQueue::waits() { return waits_seen; }
std::string WorkQueue::left_out() { return wait_left_out; }

}  // namespace fsdp::test
