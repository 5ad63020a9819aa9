// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/testing/queued/queue.hpp>
#include <tessera/fsdp/training/program.hpp>

#include "capture.hpp"

namespace fsdp::testing {

void Clock::join(const Clock& other) {
  if (other.positions_.size() > positions_.size()) positions_.resize(other.positions_.size());
  for (std::size_t i = 0; i < other.positions_.size(); ++i)
    positions_[i] = std::max(positions_[i], other.positions_[i]);
}

bool Clock::knows(const Clock& other) const {
  for (std::size_t i = 0; i < other.positions_.size(); ++i)
    if (other.positions_[i] > of(i)) return false;
  return true;
}

MemoryOrder& MemoryOrder::instance() {
  static MemoryOrder order;
  return order;
}

/// Returns the range that begins at `at`, after splitting the range that contains `at` if needed. If no range contains
/// `at`, returns the next range.
MemoryOrder::Ranges::iterator MemoryOrder::split(std::uintptr_t at) {
  auto next = ranges_.lower_bound(at);
  if (next != ranges_.end() && next->first == at) return next;
  if (next == ranges_.begin()) return next;
  const auto around = std::prev(next);
  if (around->second.end <= at) return next;
  History rest = around->second;
  around->second.end = at;
  return ranges_.emplace(at, std::move(rest)).first;
}

void MemoryOrder::check(const Moment& earlier, const Moment& now, const Clock& clock, const char* how) {
  constexpr std::size_t most = 4;
  if (earlier.position == 0 || clock.of(earlier.queue) >= earlier.position || races_.size() >= most) return;
  races_.push_back(now.what + how + earlier.what + ", and no event orders them");
}

void MemoryOrder::touch(const void* begin, std::int64_t bytes, bool writes, const Moment& moment, const Clock& clock) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t end = at + static_cast<std::uintptr_t>(bytes);
  split(end);
  auto range = split(at);
  for (; range != ranges_.end() && range->first < end; ++range) {
    History& history = range->second;
    check(history.written, moment, clock, writes ? " overwrites what was written by " : " reads what was written by ");
    if (writes) {
      for (const Moment& read : history.reads) check(read, moment, clock, " overwrites what was read by ");
      history.written = moment;
      history.reads.clear();
    } else {
      std::erase_if(history.reads, [&](const Moment& read) { return clock.of(read.queue) >= read.position; });
      history.reads.push_back(moment);
    }
  }
}

void MemoryOrder::watch(const void* begin, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  ranges_.emplace(at, History{.end = at + static_cast<std::uintptr_t>(bytes), .written = {}, .reads = {}});
}

void MemoryOrder::forget(const void* begin, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const auto last = split(at + static_cast<std::uintptr_t>(bytes));
  ranges_.erase(split(at), last);
}

std::vector<std::string> MemoryOrder::take_races() {
  const std::lock_guard lock(mutex_);
  return std::exchange(races_, {});
}

namespace {

/// Guards all queues and events. One mutex suffices, since there are few of them. Each queue and each event has
/// separate condition variables, so that it wakes only the threads that wait for it.
std::mutex mutex;
std::condition_variable idle;  ///< a queue has completed all its tasks, or is being destroyed
std::atomic<bool> nothing_runs = false;
std::atomic<std::chrono::microseconds> pace = std::chrono::microseconds(0);
std::atomic<std::uint64_t> most_ahead = 0;

/// The clock of a host thread that creates queues (a rank). Everything for which the thread has waited happens before
/// all that it enqueues later.
thread_local Clock host;
thread_local std::int64_t queues_made = 0;
thread_local std::set<std::int64_t> events_to_leave_out;
thread_local EventPoints points_waited_at;
thread_local std::size_t points_forgotten = 0;

}  // namespace

struct QueuedEvent::State {
  Clock clock;
  std::thread::id host;
  std::int64_t number = -1;  ///< number of the event in its host's schedule
  bool left_out = false;
  bool happened = false;
  std::condition_variable occurred;
};

bool QueuedEvent::happened() const {
  WorkCapture::refuse("the host asks for an event");
  require<Error>(captured_ == nullptr, "the host asks for an event of a graph");
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
    train::use_threads(1);                                               // this thread belongs to the queue
    const std::int64_t scratch_bytes = moves_for_peers() ? 0 : 1 << 22;  // debug builds fill them with NaN
    device::Ledger ledger;
    device::Cpu::Arena scratch(ledger, scratch_bytes);
    device::Cpu::Stream stream(scratch, 1);
    std::minstd_rand random(static_cast<unsigned>(id + 1));
    std::unique_lock lock(mutex);
    for (;;) {
      pushed.wait(lock, [&] { return closing || !tasks.empty(); });
      if (tasks.empty()) return;
      const Task task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 100));
      if (const auto least = pace.load(); least.count() > 0) std::this_thread::sleep_for(least);
      std::exception_ptr thrown;
      try {
        task(stream);
      } catch (...) {
        thrown = std::current_exception();
      }
      lock.lock();
      if (thrown) failure = thrown;
      ++done;
      finished.notify_all();
      if (done == asked) idle.notify_all();
    }
  }

  void push(Task task) {
    std::unique_lock lock(mutex);
    if (const std::uint64_t most = most_ahead; most > 0) finished.wait(lock, [&] { return asked - done < most; });
    if (!thread.joinable()) thread = std::thread([this] { run(); });
    tasks.push_back(std::move(task));
    ++asked;
    pushed.notify_one();
  }

  /// Events are numbered within their queue, since the order in which different queues record them depends on timing.
  static constexpr std::int64_t most_events = 1'000'000;
  std::int64_t next_event = most_events * queues_made++;

  /// Whether this queue belongs to a communicator, on which the schedule itself records no events.
  bool moves_for_peers() const { return name.starts_with("threads") || name.starts_with("nccl"); }

  void note_wait(const QueuedEvent::State& event) {
    const std::uint64_t now = clock.of(id) + 1;
    if (std::exchange(waited_at, now) != now) {
      points_waited_at.emplace_back();
      point = points_waited_at.size() - 1;
    }
    points_waited_at[point].push_back(event.number);
  }

  std::uint64_t waited_at = 0;  ///< 1 + the number of operations before the last wait of this queue
  std::size_t point = 0;
  std::string name;
  std::size_t id;
  Clock clock;
  std::deque<Task> tasks;
  std::uint64_t asked = 0, done = 0;
  std::condition_variable pushed;    ///< a task was added, or the queue is being destroyed
  std::condition_variable finished;  ///< a task was completed
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
    if (State::all.empty()) State::made = 0;  // keeps clocks short, since nothing refers to old queues any more
    state_->pushed.notify_one();
    idle.notify_all();
  }
  if (state_->thread.joinable()) state_->thread.join();
}

std::size_t WorkQueue::id() const { return state_->id; }
const std::string& WorkQueue::name() const { return state_->name; }

WorkGraph WorkQueue::capture(const std::function<void()>& ask) {
  WorkGraph graph;
  graph.kept_ = std::make_shared<WorkCapture>(*this);
  graph.kept_->capture(ask);
  return graph;
}

QueuedEvent WorkQueue::record() {
  if (auto* const capture = WorkCapture::of_this_host()) return capture->record(*this);
  QueuedEvent event;
  event.state_ = std::make_shared<QueuedEvent::State>();
  event.state_->clock = state_->clock;
  event.state_->host = std::this_thread::get_id();
  if (!state_->moves_for_peers()) event.state_->number = state_->next_event++;
  event.state_->left_out = events_to_leave_out.contains(event.state_->number);
  event.state_->happened = nothing_runs;
  if (nothing_runs) return event;
  state_->push([point = event.state_](device::Cpu::Stream&) {
    const std::lock_guard lock(mutex);
    point->happened = true;
    point->occurred.notify_all();
  });
  return event;
}

void WorkQueue::wait(const QueuedEvent& event) {
  if (auto* const capture = WorkCapture::of_this_host()) return capture->wait(*this, event);
  require<Error>(event.captured_ == nullptr, state_->name, " waits for an event of a graph");
  state_->clock.join(host);
  if (event.state_ == nullptr || event.state_->left_out || state_->clock.knows(event.state_->clock)) return;
  if (event.state_->host == std::this_thread::get_id() && event.state_->number >= 0) state_->note_wait(*event.state_);
  state_->clock.join(event.state_->clock);
  if (nothing_runs) return;
  state_->push([point = event.state_](device::Cpu::Stream&) {
    std::unique_lock lock(mutex);
    point->occurred.wait(lock, [&] { return point->happened; });
  });
}

void WorkQueue::synchronize() {
  WorkCapture::refuse("the host waits for a queue");
  std::unique_lock lock(mutex);
  const std::uint64_t last = state_->asked;
  state_->finished.wait(lock, [&] { return state_->done >= last; });
  host.join(state_->clock);
  if (state_->failure) std::rethrow_exception(std::exchange(state_->failure, nullptr));
}

void WorkQueue::submit(const char* operation, std::span<const Access> accesses,
                       std::function<void(device::Cpu::Stream&)> work) {
  if (auto* const capture = WorkCapture::of_this_host()) return capture->submit(*this, operation, accesses, work);
  state_->clock.join(host);
  const std::uint64_t position = state_->clock.advance(state_->id);
  const Moment moment{.queue = state_->id, .position = position, .what = state_->name + ": " + operation};
  for (const Access& access : accesses)
    MemoryOrder::instance().touch(access.begin, access.bytes, access.writes, moment, state_->clock);
  if (!nothing_runs) state_->push(std::move(work));
}

void WorkQueue::at_launch(const std::function<void()>& work) {
  if (auto* const capture = WorkCapture::of_this_host()) return capture->at_launch(*this, work);
  work();
}

void WorkQueue::drain_all() {
  std::unique_lock lock(mutex);
  idle.wait(lock,
            [] { return std::ranges::all_of(State::all, [](auto* state) { return state->done == state->asked; }); });
}

void WorkQueue::slow_down(std::chrono::microseconds of_each, std::uint64_t most) {
  pace = of_each;
  most_ahead = most;
}

void WorkQueue::leave_out(const std::vector<std::int64_t>& events) {
  host = {};
  events_to_leave_out = {events.begin(), events.end()};
  points_waited_at.clear();
  points_forgotten = 0;
}
void WorkQueue::check_only(bool on) { nothing_runs = on; }
EventPoints WorkQueue::points() {
  return {points_waited_at.begin() + static_cast<std::ptrdiff_t>(points_forgotten), points_waited_at.end()};
}
void WorkQueue::forget_points() { points_forgotten = points_waited_at.size(); }

}  // namespace fsdp::testing
