// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fake NCCL on the queues of QueuedCpu, which check the order of all accesses: a table of functions, and
/// QueuedNccl, a communicator over it whose ranks are threads. A group is enqueued once the hosts of all ranks have
/// ended it, so that a host that waits for all queues of the process waits for no host.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/nccl.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>
#include <tessera/fsdp/testing/report.hpp>

#include "fake.hpp"

namespace fsdp::testing {

class FakeQueuedNccl : public FakeNccl {
 public:
  static FakeQueuedNccl& instance() {
    static auto* const fake = new FakeQueuedNccl;  // never destroyed: threads of aborts may outlive main
    return *fake;
  }
  /// Returns the table of functions that replaces the library's in comm::Nccl.
  static const comm::nccl::Table& table() {
    static FakeQueuedNccl& fake = instance();
    static const comm::nccl::Table made{
        .version = [] { return fake.version.load(); },
        .get_unique_id = get_unique_id,
        .init = [](Comm& comm, int size, const Id& id, int rank) { return fake.init(comm, size, id, rank); },
        .split = [](Comm comm, int color, int key, Comm& part) { return fake.split(comm, color, key, part); },
        .finalize = [](Comm comm) { return fake.finalize(comm); },
        .destroy = [](Comm comm) { return fake.leave(comm, "ncclCommDestroy", false); },
        .abort = [](Comm comm) { return fake.leave(comm, "ncclCommAbort", true); },
        .async_error = [](Comm comm, Result& state) { return state = fake.state_of(comm), Result::success; },
        .error_string = [](Result result) { return result == Result::remote_error ? "remote error" : "another error"; },
        .last_error = [](Comm) { return "the fake knows why"; },
        .rank = [](Comm comm, int& rank) { return rank = fake.member_of(comm).rank, Result::success; },
        .size = [](Comm comm, int& size) { return size = fake.member_of(comm).world->size(), Result::success; },
        .group_start = group_start,
        .group_end = [] { return fake.group_end(); },
        .call = [](const Call& call, Comm comm, Stream stream) { return fake.call(call, comm, stream); },
        .mem_alloc = [](void*& data, std::size_t bytes) { return fake.allocate(data, bytes); },
        .mem_free = [](void* data) { return fake.free(data); },
        .register_memory = [](Comm comm, void* data, std::size_t bytes,
                              void*& handle) { return fake.register_memory(comm, data, bytes, handle); },
        .deregister_memory = [](Comm comm, void* handle) { return fake.deregister_memory(comm, handle); },
    };
    return made;
  }

  // State for tests, in chronological order. Access it only while no rank runs.
  static inline std::vector<std::string> problems;
  static inline std::vector<std::pair<int, NcclCalls>> groups;  ///< a rank, and its calls in one group
  static inline std::map<std::string, int> held;  ///< objects that exist, by kind; kinds without any are omitted

 private:
  FakeQueuedNccl() : FakeNccl(guard_, true) { tells_of_aborts = true; }

  void problem(const std::string& text) override {
    const std::lock_guard lock(guard_);
    problems.push_back(text);
  }
  void hold(const char* kind, int by) override {
    if ((held[kind] += by) == 0) held.erase(kind);
  }
  std::string refusal_of(const NcclMember& member, const Call&, Stream stream) const override {
    if (stream == nullptr) return "on the default stream";
    return member.stream == nullptr || member.stream == stream ? "" : "on another stream than before";
  }
  bool can_register(const void* data, std::size_t bytes) const override {
    const auto found = memory_.find(data);
    return found != memory_.end() && found->second == bytes;
  }
  void enqueue(const std::shared_ptr<NcclMember>& member, NcclGroup group) override {
    const int rank = member->rank, size = member->world->size();
    groups.emplace_back(rank, group.calls);
    std::vector<Access> accesses;
    for (const Call& call : group.calls) {
      accesses.push_back({call.from, bytes_sent(call, rank, size), false});
      accesses.push_back({call.to, bytes_received(call, rank, size), true});
    }
    const auto turns = std::make_shared<std::deque<std::int64_t>>();
    const auto kernel = [this, member, turns, calls = std::move(group.calls)](auto&) {
      ++member->running;
      std::unique_lock lock(turns_mutex_);
      const std::int64_t turn = turns->front();
      turns->pop_front(), lock.unlock();
      execute(*member, calls, turn, 0, 0);
      --member->running;
      member->world->changed();
    };
    auto& queue = *static_cast<WorkQueue*>(group.stream);
    queue.at_launch([this, member, turns] {
      const std::lock_guard lock(turns_mutex_);
      turns->push_back(member->launched++);
    });
    queue.submit("nccl", accesses, kernel);
  }
  void synchronize(const NcclMember& member) override {
    if (member.stream != nullptr) static_cast<WorkQueue*>(member.stream)->synchronize();
  }

  Result allocate(void*& data, std::size_t bytes) {
    data = QueuedCpu::allocate(static_cast<std::int64_t>(bytes));
    const std::lock_guard lock(guard_);
    memory_[data] = bytes;
    return hold("memory", 1), Result::success;
  }
  Result free(void* data) {
    std::unique_lock lock(guard_);
    const auto bytes = static_cast<std::int64_t>(memory_.extract(data).mapped());
    hold("memory", -1);
    lock.unlock();
    QueuedCpu::deallocate(static_cast<std::byte*>(data), bytes);
    return Result::success;
  }

  std::recursive_mutex guard_;
  std::mutex turns_mutex_;
  std::map<const void*, std::size_t> memory_;
};

/// Sets the order of sums for its lifetime.
class NcclSums {
 public:
  using enum NcclSumOrder;

  explicit NcclSums(NcclSumOrder order) { FakeQueuedNccl::instance().sums = order; }
  NcclSums(const NcclSums&) = delete;
  NcclSums& operator=(const NcclSums&) = delete;
  ~NcclSums() { FakeQueuedNccl::instance().sums = in_fixed_order; }
};

/// A problem that the fake library records fails the running test.
class QueuedNccl : public comm::Nccl<QueuedCpu> {
  using Base = comm::Nccl<QueuedCpu>;

 public:
  /// Of a program that has set NCCL's variables.
  static inline const comm::nccl::Settings settings{.launch_order = comm::nccl::LaunchOrder::implicit,
                                                    .nvls = comm::nccl::Nvls::off};
  QueuedNccl split(int color) { return QueuedNccl(Base::split(color)); }

  /// Starts the ranks and calls f(communicator) on each. Returns f's status.
  static int run(int ranks, const comm::Options& options, auto f) {
    using Fake = FakeQueuedNccl;
    Fake::problems.clear();
    Fake::groups.clear();
    const comm::nccl::Id id = comm::nccl::make_id(Fake::table());
    const int status = comm::Threads<>::run(ranks, options, [&](auto& host) {
      const comm::nccl::Seat seat{.rank = host.rank(), .size = ranks, .id = id, .settings = settings};
      QueuedNccl communicator(Base(Fake::table(), seat, options));
      return comm::run_rank(f, communicator);
    });
    const std::string where = message("a run of ", ranks, ranks == 1 ? " rank" : " ranks");
    for (const std::string& problem : Fake::problems) testing::fail("NCCL can do every call", where, problem);
    for (const auto& [kind, count] : Fake::held)
      expect_value("all that NCCL gave is given back when the ranks have ended", where, kind, count, 0);
    return status;
  }

 private:
  explicit QueuedNccl(Base base) : Base(std::move(base)) {}
};

}  // namespace fsdp::testing
