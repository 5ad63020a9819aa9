// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fake NCCL: ranks are threads or processes of one machine, and collectives are kernels that wait for their peers.
///
/// Rules: NCCL 2.28.9's documentation and source. Communicators are non-blocking; the first group waits for the hosts
/// of all peers, and every group for their devices. Collectives of a communicator run in the order in which the host
/// launched them or their graphs, on any streams (strongstream.cc). A captured collective belongs to its graph:
/// finalizing or aborting blocks until the graph is destroyed (init.cc, commDestroySync). An abort is reported to ranks
/// on other hosts (NCCL_HOSTID) only. Sums have an order that is drawn from a seed and the number of ranks, as Ring's,
/// or another in each call, as that of NVLS. Every group is compared over ranks before data moves: a call that NCCL
/// would reject, or on which it would hang, is a problem that identifies the ranks.
///
/// Its devices are those of the derived class: CUDA's fakes (tests/cuda_host) or QueuedCpu (queued.hpp).
#pragma once

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/nccl_table.hpp>

#include "admission.hpp"
#include "calls.hpp"
#include "world.hpp"

namespace fsdp::testing {

/// The order in which the library adds the ranks' contributions: that of ranks, a drawn one that is the same in all
/// runs (as Ring's), or another one in each call (as that of NVLS).
enum class NcclSumOrder { in_rank_order, in_fixed_order, in_changing_order };

struct NcclGroup {
  NcclCalls calls = {};
  comm::nccl::Stream stream = nullptr;
};

/// The object behind a communicator.
struct NcclMember {
  std::shared_ptr<NcclWorld> world = nullptr;
  std::string name = {};  ///< name of the world
  std::string axis = {};  ///< "world", or the split of it that made this communicator
  int rank = 0;
  int device = 0;
  NcclAdmission* admission = nullptr;      ///< null: several kernels may run at a time
  comm::nccl::Stream stream = nullptr;     ///< of the last call
  std::vector<NcclGroup> asked = {};       ///< groups that the host has not launched yet
  std::int64_t groups = 0;                 ///< number of groups that the host has ended
  std::atomic<std::int64_t> launched = 0;  ///< number of launched collectives; each launch of a graph counts
  std::atomic<std::int64_t> executed = 0;
  std::int64_t splits = 0;
  comm::nccl::Comm* split_result = nullptr;
  std::atomic<int> running = 0;  ///< kernels that are queued or running
  int persistent = 0;            ///< graphs that contain collectives of this communicator
  std::multimap<const std::byte*, std::size_t> registered = {};  ///< buffers by their begin
  std::atomic<bool> finalized = false;
  std::atomic<bool> aborted = false;
};

/// Functions behave like those of the same name in comm::nccl::Table.
class FakeNccl {
 public:
  using Result = comm::nccl::Result;
  using Comm = comm::nccl::Comm;
  using Stream = comm::nccl::Stream;
  using Id = comm::nccl::Id;
  using Call = comm::nccl::Call;

  static Result get_unique_id(Id& id) {
    static std::atomic<std::int64_t> made = 0;
    const std::string name = message("nccl.", ::getpid(), ".", ++made);
    id = {};
    std::memcpy(id.data(), name.c_str(), name.size());
    return Result::success;
  }
  NcclMember& member_of(Comm comm) {
    const std::lock_guard lock(mutex);
    return *members_.at(comm);
  }
  Result init(Comm& made, int size, const Id& id, int rank) {
    std::this_thread::sleep_for(start_delay.load());
    const std::lock_guard lock(mutex);
    read_environment();
    made = enter(reinterpret_cast<const char*>(id.data()), "world", size, rank);
    return Result::in_progress;
  }
  Result split(Comm comm, int color, int key, Comm& made) {
    const std::lock_guard lock(mutex);
    NcclMember& member = member_of(comm);
    if (color < 0) return Result::invalid_argument;
    member.world->vote(member.rank, member.splits, {color, key});
    member.split_result = &made;
    return Result::in_progress;
  }
  Result finalize(Comm comm) { return member_of(comm).finalized = true, Result::in_progress; }
  /// Destroys or aborts a communicator and its registrations, as the library's cleanup does; `call` is the function.
  Result leave(Comm comm, const char* call, bool aborts) {
    std::unique_lock lock(mutex);
    const auto member = members_.at(comm);
    if (!aborts && !member->asked.empty()) problem(message("NCCL: ", call, " of a communicator in use"));
    lock.unlock();
    if (aborts) {
      member->aborted = true;
      member->world->abort();
    }
    drain(*member, call);
    synchronize(*member);
    lock.lock();
    hold("registrations", -static_cast<int>(member->registered.size()));
    members_.erase(comm);
    hold("communicators", -1);
    return Result::success;
  }
  /// Returns what async_error reports. Advances a split and launches groups, as in the library.
  Result state_of(Comm comm) {
    const std::lock_guard lock(mutex);
    const auto member = members_.at(comm);
    const NcclWorld& world = *member->world;
    const Result failure = failures[static_cast<std::size_t>(member->rank)];
    const bool hears_of_abort = world.aborted() && (tells_of_aborts || !world.on_one_host());
    if (failure != Result::success) return failure;
    if (hung_ == generation() + 1) return Result::internal_error;
    if (hears_of_abort) return Result::remote_error;
    const bool all_there = world.joined() >= world.size();
    if (all_there) {
      advance_split(*member);
      launch(member);
    }
    const bool ending = member->finalized && (member->running > 0 || member->persistent > 0);
    const bool busy = !all_there || member->split_result != nullptr || !member->asked.empty();
    return busy || ending ? Result::in_progress : Result::success;
  }
  static Result group_start() { return ++depth, Result::success; }
  Result call(const Call& call, Comm comm, Stream stream) {
    const std::lock_guard lock(mutex);
    NcclMember& member = member_of(comm);
    std::string refusal = testing::refusal_of(call, member.rank, member.world->size());
    if (depth == 0) refusal = "not in a group";
    if (!member.asked.empty()) refusal = "the communicator is not done with the group before";
    if (open_groups[comm].calls.size() == 2048) refusal = "more calls in a group than NCCL takes";
    if (const std::string machines = refusal_of(member, call, stream); !machines.empty()) refusal = machines;
    if (!refusal.empty()) {
      problem(message("NCCL: rank ", member.rank, ", ", words(call), ": ", refusal));
      return Result::invalid_argument;
    }
    if (call.from != nullptr && call.to != nullptr) {
      const auto bytes = static_cast<std::size_t>(call.count * size_of(call.dtype));
      const auto is_registered = [&](const std::byte* data) {
        return std::ranges::any_of(member.registered, [&](const auto& buffer) {
          return data >= buffer.first && data + bytes <= buffer.first + buffer.second;
        });
      };
      const int sides = (is_registered(call.from) ? 1 : 0) + (is_registered(call.to) ? 1 : 0);
      ++by_registered[message(member.axis, ", ", sides, " registered")];
    }
    open_groups[comm].calls.push_back(call);
    open_groups[comm].stream = member.stream = stream;
    return Result::success;
  }
  /// `fails`: the group is forgotten.
  Result group_end(bool fails = false) {
    if (--depth > 0) return Result::success;
    const std::lock_guard lock(mutex);
    for (auto& [comm, group] : std::exchange(open_groups, {})) {
      if (fails || group.calls.empty()) continue;
      NcclMember& member = member_of(comm);
      member.asked.push_back(std::move(group));
      ++member.groups;
      member.world->arrive(member.rank);
    }
    return fails ? Result::unhandled_cuda_error : Result::in_progress;
  }
  Result register_memory(Comm comm, void* data, std::size_t bytes, void*& handle) {
    const std::lock_guard lock(mutex);
    if (members_.count(comm) == 0 || !can_register(data, bytes)) return Result::invalid_argument;
    handle = data;
    member_of(comm).registered.emplace(static_cast<const std::byte*>(data), bytes);
    return hold("registrations", 1), Result::success;
  }
  Result deregister_memory(Comm comm, void* handle) {
    const std::lock_guard lock(mutex);
    if (members_.count(comm) == 0 || member_of(comm).registered.extract(static_cast<std::byte*>(handle)).empty())
      return Result::invalid_argument;
    return hold("registrations", -1), Result::success;
  }

  // ---- Controls for tests
  /// From now on, the communicators of a rank report this failure; `success` ends it.
  void fail(int rank, Result failure) { failures[static_cast<std::size_t>(rank)] = failure; }
  std::array<std::atomic<Result>, NcclWorld::most_ranks> failures = {};
  /// By rank: how much longer its kernels take, after all ranks have sent their data.
  std::array<std::atomic<std::chrono::milliseconds>, NcclWorld::most_ranks> delays = {};
  std::atomic<std::chrono::milliseconds> start_delay = {};  ///< how much later this process joins a communicator
  std::atomic<bool> tells_of_aborts = false;  ///< whether ranks of one host too are notified when a peer aborts
  std::atomic<int> version = 22809;           ///< NCCL_VERSION_CODE of the loaded library
  std::atomic<NcclSumOrder> sums = NcclSumOrder::in_fixed_order;
  std::atomic<std::uint64_t> seed = 1;
  std::atomic<bool> ordered = true;      ///< whether kernels run in the order of the host's launches
  std::atomic<bool> keeps_order = true;  ///< whether new communicators obey NCCL_LAUNCH_ORDER_IMPLICIT
  std::string folder;  ///< not empty: communicators are files there; their ranks may be other processes
  /// Number of calls with a source and a destination, by communicator ("world", "split 0", ...) and by how many of the
  /// two are registered with it: "world, 2 registered". Guarded by the mutex.
  std::map<std::string, int> by_registered;

 protected:
  FakeNccl(std::recursive_mutex& guard, bool always_meet) : mutex(guard), hosts_always_meet_(always_meet) {}
  ~FakeNccl() = default;

  /// A kernel: waits for its turn, for the device and for its peers, then does this rank's part. `turn` and `kernel`:
  /// its number among those of the communicator, and on the device.
  void execute(NcclMember& member, const NcclCalls& calls, std::int64_t turn, std::int64_t kernel,
               std::uint64_t begun) {
    NcclWorld& world = *member.world;
    NcclAdmission* const admission = member.admission;
    const std::shared_ptr<void> ends(nullptr, [&](void*) {
      if (admission != nullptr) admission->end(kernel);
    });
    const bool in_order = ordered;
    const auto gone = [&] { return member.aborted || hung_ == begun + 1 || generation() != begun; };
    const auto wait_until = [&](const auto& reached) {
      for (;;) {
        const std::uint32_t seen = world.changes();
        if (reached()) return true;
        if (gone()) return false;
        world.wait(seen);
      }
    };
    if (!wait_until([&] { return member.executed == turn; }) || member.aborted) return;
    if (admission != nullptr && !admission->admit(kernel, in_order, seed, gone)) return;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    const auto report_hang = [&] {  // also ends the kernels, which the library would not
      if (in_order || admission == nullptr || !admission->is_contended() || std::chrono::steady_clock::now() < limit)
        return;
      if (hung_.exchange(begun + 1) == begun + 1) return;
      problem(message("NCCL: rank ", member.rank, " of communicator ", member.name,
                      " waits for its peers while another communicator's kernel waits for the device; without "
                      "NCCL_LAUNCH_ORDER_IMPLICIT=1 their order differs between ranks"));
    };
    std::string found = world.publish(member.rank, turn, calls);
    if (!found.empty()) problem("NCCL: " + found);
    if (found.empty() && wait_until([&] { return report_hang(), world.published(turn); })) {
      const NcclCallsByRank group = world.group(turn);
      found = disagreement_of(group);
      if (found.empty()) {
        std::this_thread::sleep_for(delays[static_cast<std::size_t>(member.rank)].load());
        perform(member.rank, group, order_of_sums(member, turn));
      } else if (member.rank == 0) {  // all ranks detect it; one reports it
        problem("NCCL: " + found);
      }
    }
    if (!found.empty()) {
      if (tells_of_aborts) world.abort();  // NCCL would hang
      wait_until([] { return false; });
    }
    ++member.executed;
    world.changed();
  }

  std::recursive_mutex& mutex;  ///< of the members

 private:
  // ---- The machine. All but `problem` are called under the mutex.
  virtual void problem(const std::string& text) = 0;
  virtual void hold(const char* kind, int by) = 0;  ///< counts objects that exist
  virtual void prepare(NcclMember&) {}              ///< sets the device and the admission of a new member
  virtual void read_environment() {}
  /// Returns why a call cannot run on the machine; empty if it can.
  virtual std::string refusal_of(const NcclMember& member, const Call& call, Stream stream) const = 0;
  virtual bool can_register(const void* data, std::size_t bytes) const = 0;
  /// Makes a stream execute a group.
  virtual void enqueue(const std::shared_ptr<NcclMember>& member, NcclGroup group) = 0;
  virtual void synchronize(const NcclMember&) {}          ///< at a member's end, without the mutex
  virtual std::uint64_t generation() const { return 0; }  ///< changes when all kernels must end
  virtual std::chrono::milliseconds patience() const { return std::chrono::seconds(3); }

  Comm enter(const std::string& name, const std::string& axis, int size, int rank) {
    const auto made = std::make_shared<NcclMember>();
    made->world = NcclWorld::open(folder, name, size);
    made->name = name;
    made->axis = axis;
    made->rank = rank;
    prepare(*made);
    const char* const host = std::getenv("NCCL_HOSTID");
    made->world->join(rank, host == nullptr ? 0 : std::hash<std::string>()(host));
    const auto handle = reinterpret_cast<Comm>(made.get());
    members_[handle] = made;
    hold("communicators", 1);
    return handle;
  }
  void advance_split(NcclMember& member) {
    if (member.split_result == nullptr) return;
    const auto part = member.world->part_of(member.rank, member.splits);
    if (!part) return;
    const std::string name = message(member.name, ".", member.splits, ".", part->color);
    *std::exchange(member.split_result, nullptr) =
        enter(name, message("split ", member.splits), part->size, part->rank);
    ++member.splits;
  }
  /// The host's part: launches groups once the hosts of all ranks have reached their first one, or these.
  void launch(const std::shared_ptr<NcclMember>& member) {
    if (!member->world->arrived(hosts_always_meet_ ? member->groups : 1)) return;
    for (NcclGroup& group : std::exchange(member->asked, {})) enqueue(member, std::move(group));
  }
  /// Waits until the member's kernels have ended and no graph contains its collectives.
  void drain(const NcclMember& member, const char* call) {
    const auto limit = std::chrono::steady_clock::now() + patience();
    for (;;) {
      const std::uint32_t seen = member.world->changes();
      std::unique_lock lock(mutex);
      if (member.running == 0 && member.persistent == 0) return;
      if (std::chrono::steady_clock::now() > limit)
        return problem(message(call, " blocks: ", member.persistent, " graphs hold collectives of the communicator, ",
                               member.running.load(), " kernels run"));
      lock.unlock();
      member.world->wait(seen);
    }
  }
  /// The order of a turn's sums; see `perform`.
  std::uint64_t order_of_sums(const NcclMember& member, std::int64_t turn) const {
    if (sums == NcclSumOrder::in_rank_order) return 0;
    if (sums == NcclSumOrder::in_fixed_order) return seed + static_cast<std::uint64_t>(member.world->size());
    return 1 + std::hash<std::string>()(member.name) / 2 + static_cast<std::uint64_t>(turn);
  }

  static inline thread_local int depth = 0;  ///< of open groups
  static inline thread_local std::map<Comm, NcclGroup> open_groups;
  const bool hosts_always_meet_;  ///< whether every group waits for the hosts of all ranks
  std::map<Comm, std::shared_ptr<NcclMember>> members_;
  std::atomic<std::uint64_t> hung_ = 0;  ///< the generation, plus 1, in which kernels waited for each other
};

}  // namespace fsdp::testing
