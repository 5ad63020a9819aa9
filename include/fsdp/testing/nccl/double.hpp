// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fake NCCL library: the same table of functions, on the queues of a device that runs on the host; and DoubledNccl,
/// a communicator over it for stacks and suites that needs neither NCCL nor a GPU. Every group is compared over ranks
/// before any data moves. A call that NCCL would reject, or on which it would hang, is recorded as a problem that
/// identifies the ranks. As with the library, work is not complete when a function returns: calls of async_error
/// advance it.
#pragma once

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/nccl.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/testing/nccl/calls.hpp>
#include <tessera/fsdp/testing/queued/queued_cpu.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// The calls that one rank made in one group.
struct NcclGroupRecord {
  int rank = 0;
  NcclCalls calls;
};

/// The order in which the library adds the ranks' contributions: that of ranks, a drawn one that is the same in all
/// runs (as Ring's), or another one in each call (as that of NVLS).
enum class NcclSumOrder { in_rank_order, in_fixed_order, in_changing_order };

/// The library's functions, over all ranks of this process. The queues of Device do the work.
template <class Device>
class NcclDouble {
 public:
  using Result = comm::nccl::Result;

  /// Returns the table of functions that replaces the library's in comm::Nccl.
  static const comm::nccl::Table& table() {
    static const comm::nccl::Table made{
        .version = [] { return library_version; },
        .get_unique_id = get_unique_id,
        .init = init,
        .split = split,
        .finalize = [](comm::nccl::Comm) { return Result::success; },
        .destroy = destroy,
        .abort = abort,
        .async_error = async_error,
        .error_string = [](Result result) { return result == Result::remote_error ? "remote error" : "invalid usage"; },
        .last_error = [](comm::nccl::Comm) { return "the double knows why"; },
        .rank = [](comm::nccl::Comm comm, int& rank) { return rank = member_of(comm).rank, Result::success; },
        .size = [](comm::nccl::Comm comm, int& size) { return size = member_of(comm).world->size, Result::success; },
        .group_start = group_start,
        .group_end = group_end,
        .call = call,
        .mem_alloc = mem_alloc,
        .mem_free = mem_free,
        .register_memory = register_memory,
        .deregister_memory = deregister_memory,
    };
    return made;
  }

  // State for tests, in chronological order. Access it only while no rank runs.
  static inline std::vector<std::string> problems;
  static inline std::vector<NcclGroupRecord> groups;
  static inline NcclSumOrder sums = NcclSumOrder::in_fixed_order;
  static inline int library_version = 22809;  ///< NCCL_VERSION_CODE
  static inline bool tells_of_aborts = true;  ///< whether peers of an aborted rank are notified
  static inline int communicators = 0;        ///< number of communicators not yet destroyed
  static inline std::map<void*, std::size_t> memory;
  static inline std::set<void*> registered;

 private:
  using Queue = typename Device::Queue;
  using Event = typename Device::Event;

  struct Group {
    NcclCallsByRank calls;
    std::map<int, Event> ready;     ///< before the group, by rank
    std::map<int, Event> finished;  ///< after a rank's own part, by rank
    bool compared = false;
    std::uint64_t order = 0;  ///< order of sums; see NcclPart
  };
  struct World {
    explicit World(int ranks) : size(ranks) {}
    int size;
    int joined = 0;
    bool broken = false;
    std::set<int> aborted;
    std::map<std::int64_t, Group> groups;
    std::map<std::int64_t, std::map<int, std::pair<int, int>>> splits;  ///< color and key by rank
    std::map<std::pair<std::int64_t, int>, std::shared_ptr<World>> parts;
  };
  /// The object that a communicator handle points to.
  struct Member {
    std::shared_ptr<World> world;
    int rank = 0;
    std::int64_t groups = 0;  ///< number of groups submitted
    bool in_group = false;
    std::vector<NcclPart<Device>> parts;  ///< parts of this rank; the last one belongs to the group that is open
    comm::nccl::Stream stream = nullptr;
    std::int64_t splits = 0;
    comm::nccl::Comm* split_result = nullptr;
  };

  static inline std::mutex mutex_;
  static inline thread_local int depth_ = 0;  ///< nesting depth of this thread's open groups
  static inline thread_local std::map<Member*, NcclCalls> open_;

  static Member& member_of(comm::nccl::Comm comm) { return *reinterpret_cast<Member*>(comm); }

  template <class... Parts>
  static void problem(World& world, const Parts&... parts) {
    world.broken = true;
    problems.push_back(message(parts...));
  }

  static Result get_unique_id(comm::nccl::Id& id) {
    static std::atomic<std::int64_t> made = 0;
    const std::int64_t number = ++made;
    std::memcpy(id.data(), &number, sizeof number);
    return Result::success;
  }

  static Result init(comm::nccl::Comm& made, int size, const comm::nccl::Id& id, int rank) {
    const std::lock_guard lock(mutex_);
    static std::map<comm::nccl::Id, std::shared_ptr<World>> worlds;
    std::shared_ptr<World>& world = worlds[id];
    if (world == nullptr) world = std::make_shared<World>(size);
    if (world->size != size) problem(*world, "rank ", rank, " joins ", size, " ranks, others joined ", world->size);
    made = enter(world, rank);
    return Result::in_progress;
  }

  static comm::nccl::Comm enter(const std::shared_ptr<World>& world, int rank) {
    ++world->joined;
    ++communicators;
    return reinterpret_cast<comm::nccl::Comm>(new Member{.world = world, .rank = rank, .parts = {}});
  }

  static Result split(comm::nccl::Comm comm, int color, int key, comm::nccl::Comm& made) {
    const std::lock_guard lock(mutex_);
    Member& member = member_of(comm);
    if (color < 0) problem(*member.world, "rank ", member.rank, " splits with color ", color);
    member.world->splits[member.splits][member.rank] = {color, key};
    member.split_result = &made;
    return Result::in_progress;
  }

  /// Calls before(member), then ends the member when its work is done.
  static Result leave(comm::nccl::Comm comm, auto before) {
    Member* const member = &member_of(comm);
    std::unique_lock lock(mutex_);
    before(*member);
    lock.unlock();
    if (member->stream != nullptr) static_cast<Queue*>(member->stream)->synchronize();
    lock.lock();
    --communicators;
    delete member;
    return Result::success;
  }
  static Result destroy(comm::nccl::Comm comm) {
    return leave(comm, [](Member& member) {
      if (member.in_group) problem(*member.world, "rank ", member.rank, " destroys a communicator in use");
    });
  }
  static Result abort(comm::nccl::Comm comm) {
    return leave(comm, [](Member& member) { member.world->aborted.insert(member.rank); });
  }

  static Result async_error(comm::nccl::Comm comm, Result& state) {
    const std::lock_guard lock(mutex_);
    Member& member = member_of(comm);
    World& world = *member.world;
    const bool lost = tells_of_aborts && !world.aborted.empty();
    if (!lost && !world.broken && world.joined == world.size) {
      advance_split(member);
      advance_group(member);
    }
    const bool busy = world.joined < world.size || member.in_group || member.split_result != nullptr;
    state = world.broken ? Result::invalid_usage
            : lost       ? Result::remote_error
            : busy       ? Result::in_progress
                         : Result::success;
    return Result::success;
  }

  static void advance_split(Member& member) {
    World& world = *member.world;
    if (member.split_result == nullptr) return;
    const auto& votes = world.splits[member.splits];
    if (static_cast<int>(votes.size()) < world.size) return;
    const auto [color, key] = votes.at(member.rank);
    int ranks = 0, rank = 0;
    for (const auto& [peer, vote] : votes) {
      if (vote.first != color) continue;
      ++ranks;
      if (std::pair(vote.second, peer) < std::pair(key, member.rank)) ++rank;
    }
    std::shared_ptr<World>& part = world.parts[{member.splits, color}];
    if (part == nullptr) part = std::make_shared<World>(ranks);
    *std::exchange(member.split_result, nullptr) = enter(part, rank);
    ++member.splits;
  }

  static Result group_start() {
    ++depth_;
    return Result::success;
  }

  static Result call(const comm::nccl::Call& call, comm::nccl::Comm comm, comm::nccl::Stream stream) {
    const std::lock_guard lock(mutex_);
    Member& member = member_of(comm);
    std::string refusal = refusal_of(call, member.rank, member.world->size);
    if (depth_ == 0) refusal = "not in a group";
    if (member.in_group) refusal = "the communicator is not done with the group before";
    if (stream == nullptr) refusal = "on the default stream";
    if (member.stream != nullptr && member.stream != stream) refusal = "on another stream than before";
    if (open_[&member].size() == 2048) refusal = "more calls in a group than NCCL takes";
    if (!refusal.empty()) problem(*member.world, "rank ", member.rank, ", ", words(call), ": ", refusal);
    member.stream = stream;
    open_[&member].push_back(call);
    return Result::in_progress;
  }

  static Result group_end() {
    if (--depth_ > 0) return Result::success;
    const std::lock_guard lock(mutex_);
    for (auto& [member, calls] : std::exchange(open_, {})) {
      groups.push_back({.rank = member->rank, .calls = calls});
      Group& group = member->world->groups[member->groups++];
      group.calls[member->rank] = std::move(calls);
      group.ready[member->rank] = static_cast<Queue*>(member->stream)->record();
      member->in_group = true;
    }
    return Result::in_progress;
  }

  static void advance_group(Member& member) {
    World& world = *member.world;
    const auto everybody = static_cast<std::size_t>(world.size);
    if (!member.in_group) return;
    Group& group = world.groups[member.groups - 1];
    if (group.calls.size() < everybody) return;
    if (!std::exchange(group.compared, true)) {
      const std::string text = disagreement_of(group.calls);
      if (!text.empty()) problem(world, "group ", member.groups - 1, ", ", text);
      static std::uint64_t drawn = 1000;
      if (sums == NcclSumOrder::in_fixed_order) group.order = everybody;
      if (sums == NcclSumOrder::in_changing_order) group.order = ++drawn;
    }
    if (world.broken) return;
    Queue& queue = *static_cast<Queue*>(member.stream);
    if (group.finished.count(member.rank) == 0) {
      for (const auto& [peer, event] : group.ready) queue.wait(event);
      member.parts.emplace_back(queue, member.rank, group.calls, group.order);
      group.finished[member.rank] = queue.record();
    }
    if (group.finished.size() < everybody) return;
    for (const auto& [peer, event] : group.finished) queue.wait(event);
    member.parts.back().finish();
    member.in_group = false;
  }

  static Result mem_alloc(void*& data, std::size_t bytes) {
    data = Device::allocate(static_cast<std::int64_t>(bytes));
    const std::lock_guard lock(mutex_);
    memory[data] = bytes;
    return Result::success;
  }
  static Result mem_free(void* data) {
    const std::lock_guard lock(mutex_);
    Device::deallocate(static_cast<std::byte*>(data), static_cast<std::int64_t>(memory.at(data)));
    memory.erase(data);
    return Result::success;
  }
  static Result register_memory(comm::nccl::Comm comm, void* data, std::size_t bytes, void*& handle) {
    const std::lock_guard lock(mutex_);
    const auto found = memory.find(data);
    if (found == memory.end() || found->second != bytes)
      problem(*member_of(comm).world, "rank ", member_of(comm).rank, " registers memory that is not NCCL's");
    registered.insert(data);
    handle = data;
    return Result::success;
  }
  static Result deregister_memory(comm::nccl::Comm, void* handle) {
    const std::lock_guard lock(mutex_);
    registered.erase(handle);
    return Result::success;
  }
};

/// Ranks are threads, which `run` starts. A problem that the fake library records fails the running test.
class DoubledNccl : public comm::Nccl<QueuedCpu> {
  using Base = comm::Nccl<QueuedCpu>;

 public:
  DoubledNccl split(int color) { return DoubledNccl(Base::split(color)); }

  /// Starts the ranks and calls f(communicator) on each. Returns f's status.
  static int run(int ranks, const comm::Options& options, auto f) {
    using Double = NcclDouble<QueuedCpu>;
    Double::problems.clear();
    Double::groups.clear();
    const comm::nccl::Id id = comm::nccl::make_id(Double::table());
    const int status = comm::Threads<>::run(ranks, options, [&](auto& host) {
      DoubledNccl communicator(
          Base(Double::table(),
               {.rank = host.rank(),
                .size = host.size(),
                .id = id,
                .settings = {.launch_order = comm::nccl::LaunchOrder::implicit, .nvls = comm::nccl::Nvls::off}},
               options));
      return comm::run_rank(f, communicator);
    });
    const std::string where = message("a run of ", ranks, ranks == 1 ? " rank" : " ranks");
    for (const std::string& problem : Double::problems) fail("NCCL can do every call that it is given", where, problem);
    constexpr std::string_view given_back = "all that NCCL gave is given back when the ranks have ended";
    expect_value(given_back, where, "the number of communicators that are left", Double::communicators, 0);
    expect_value(given_back, where, "the number of blocks of memory that are left", Double::memory.size(),
                 std::size_t{0});
    return status;
  }

 private:
  explicit DoubledNccl(Base base) : Base(std::move(base)) {}
};

}  // namespace fsdp::testing
