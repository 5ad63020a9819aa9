// SPDX-License-Identifier: Apache-2.0
/// @file
/// The double of NCCL: ranks are threads of one process, collectives are kernels that wait for their peers.
///
/// Rules: NCCL 2.28.9's documentation and source. Communicators are not blocking; the first group waits for the peers'
/// hosts, all groups for their devices. Collectives of a communicator run in the order in which the host launched them
/// or their graphs, on any streams (strongstream.cc). A captured collective belongs to the graph: finalizing or
/// aborting blocks until that is destroyed (init.cc, commDestroySync). ncclMemFree waits for no kernel. Sums are in
/// rank order.
#include <nccl.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include <comm/transfer.hpp>
#include <fsdp/device/queue.hpp>
#include <fsdp/testing/nccl/calls.hpp>

#include "machine.hpp"
#include "nccl.hpp"

namespace {

using fsdp::message;
using fsdp::comm::nccl::Call;
using namespace fsdp::testing;
using namespace fsdp::testing::cuda_host;

Machine& machine() { return Machine::instance(); }

/// A device whose queues do everything at once: what a group moves and sums, in the thread of the last rank's kernel.
struct AtOnce {
  using Queue = fsdp::device::ImmediateQueue;
  static void move(Queue&, const std::byte* from, std::byte* to, std::int64_t bytes) {
    std::memmove(to, from, static_cast<std::size_t>(bytes));
  }
  static void sum_in_order(Queue&, std::span<const std::byte* const> parts, fsdp::DType stored, fsdp::DType wire,
                           std::int64_t count, fsdp::Write write, float* sum) {
    std::vector<fsdp::comm::Contribution> contributions;
    for (const std::byte* part : parts) contributions.push_back({part, stored});
    fsdp::comm::sum_in_order(contributions, wire, count, write, sum);
  }
  static std::byte* allocate(std::int64_t bytes) { return new std::byte[static_cast<std::size_t>(bytes)]; }
  static void deallocate(std::byte* data, std::int64_t) { delete[] data; }
};

struct Execution {
  NcclCallsByRank calls;
  bool done = false;
};
struct World {
  explicit World(int ranks) : size(ranks) {}
  int size;
  int joined = 0;
  bool aborted = false;     ///< by some rank
  std::set<int> connected;  ///< ranks whose hosts came to their first group
  std::map<std::int64_t, Execution> executions;
  std::map<std::int64_t, std::map<int, std::pair<int, int>>> splits;  ///< color and key, by rank
  std::map<std::pair<std::int64_t, int>, std::shared_ptr<World>> parts;
};
struct Asked {
  NcclCalls calls;
  cudaStream_t stream;
};
struct Member {
  std::shared_ptr<World> world;
  int rank = 0;
  int device = 0;
  std::vector<Asked> asked;   ///< groups that the host has not launched yet
  std::int64_t launched = 0;  ///< collectives, those of graphs each time
  std::int64_t executed = 0;
  std::int64_t splits = 0;
  ncclComm_t* split_result = nullptr;
  int running = 0;        ///< kernels queued or under way
  int persistent = 0;     ///< graphs that hold collectives of it
  int registrations = 0;  ///< of memory
  bool finalized = false;
  bool aborted = false;
};

std::condition_variable_any changed;  ///< with the machine's mutex
std::map<ncclComm_t, std::shared_ptr<Member>> members;
std::map<int, ncclResult_t> failures;
bool tells_of_aborts = true;
thread_local int depth = 0;
thread_local std::map<ncclComm_t, Asked> open_calls;

ncclComm_t enter(const std::shared_ptr<World>& world, int rank) {
  const auto made = std::make_shared<Member>();
  made->world = world;
  made->rank = rank;
  made->device = machine().device();
  ++world->joined;
  const auto handle = reinterpret_cast<ncclComm_t>(made.get());
  members[handle] = made;
  machine().hold("communicators", 1);
  return handle;
}

/// Begins a call; where a test makes it fail, that is what it returns.
#define BEGIN() \
  if (machine().enter(__func__, true) != cudaSuccess) return ncclUnhandledCudaError

/// A kernel: waits for its turn and its peers' and, as the last, does all ranks' work.
void execute(const std::shared_ptr<Member>& member, const NcclCalls& calls, std::int64_t turn,
             std::uint64_t generation) {
  std::unique_lock lock(machine().mutex);
  const auto wait_until = [&](const auto& reached) {
    while (!reached() && !member->aborted && machine().generation() == generation)
      changed.wait_for(lock, std::chrono::milliseconds(50));
    return reached();
  };
  if (!wait_until([&] { return member->executed == turn; }) || member->aborted) return;
  Execution& execution = member->world->executions[turn];
  execution.calls[member->rank] = calls;
  if (static_cast<int>(execution.calls.size()) == member->world->size) {
    const std::string text = disagreement_of(execution.calls);
    if (!text.empty()) machine().problem("NCCL: " + text);
    if (text.empty()) {
      AtOnce::Queue queue;
      std::vector<NcclPart<AtOnce>> parts;
      for (const auto& [rank, own] : execution.calls) parts.emplace_back(queue, rank, execution.calls);
      for (auto& part : parts) part.finish();
      execution.done = true;
    }
    changed.notify_all();
  }
  if (!wait_until([&] { return execution.done; }))
    execution.calls.erase(member->rank);  // its memory may be given back: peers wait for ever
  ++member->executed;
  changed.notify_all();
}

/// The host's part: groups go to the device once all hosts have come to their first.
void launch(const std::shared_ptr<Member>& member) {
  World& world = *member->world;
  if (static_cast<int>(world.connected.size()) < world.size) return;
  for (Asked& group : std::exchange(member->asked, {})) {
    const auto stream = machine().find(group.stream);
    const auto capture = stream ? stream->capture : nullptr;
    const std::uint64_t generation = machine().generation();
    const auto turns = std::make_shared<std::deque<std::int64_t>>();
    const auto take_turn = [member, turns] { turns->push_back(member->launched++); };
    if (capture) {
      ++member->persistent;
      capture->graph()->launches.push_back(take_turn);
      capture->graph()->holds.push_back(std::shared_ptr<void>(nullptr, [member](void*) {
        const std::lock_guard lock(machine().mutex);
        --member->persistent;
        changed.notify_all();
      }));
    } else {
      ++member->running;
      take_turn();
    }
    machine().submit(group.stream, [member, turns, calls = group.calls, generation, once = !capture] {
      std::unique_lock lock(machine().mutex);
      const std::int64_t turn = turns->front();
      turns->pop_front();
      lock.unlock();
      execute(member, calls, turn, generation);
      lock.lock();
      if (once) --member->running;
      changed.notify_all();
    });
  }
}

ncclResult_t add(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  const std::lock_guard lock(machine().mutex);
  Member& member = *members.at(comm);
  std::string refusal = refusal_of(call, member.rank, member.world->size);
  if (depth == 0) refusal = "not in a group";
  if (!member.asked.empty()) refusal = "the communicator is not done with the group before";
  if (open_calls[comm].calls.size() == 2048) refusal = "more calls in a group than NCCL takes";
  const auto bytes = static_cast<std::size_t>(call.count * fsdp::size_of(call.dtype));
  for (const std::byte* data : {call.from, static_cast<const std::byte*>(call.to)})
    if (data != nullptr) {
      const Block* const block = machine().block_of(data, bytes);
      if (block == nullptr || block->bytes == 0)
        refusal = "it leaves device memory";
      else if (block->device != member.device)
        refusal = "memory of another device";
    }
  if (!refusal.empty()) {
    machine().problem(message("NCCL: rank ", member.rank, ", ", words(call), ": ", refusal));
    return ncclInvalidArgument;
  }
  open_calls[comm].calls.push_back(call);
  open_calls[comm].stream = stream;
  return ncclSuccess;
}

fsdp::DType dtype_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64: return fsdp::DType::f64;
    case ncclFloat32: return fsdp::DType::f32;
    case ncclBfloat16: return fsdp::DType::bf16;
    case ncclFloat16: return fsdp::DType::f16;
    case ncclInt64: return fsdp::DType::i64;
    case ncclInt32: return fsdp::DType::i32;
    default: return fsdp::DType::u8;
  }
}

Call call_of(Call::Kind kind, const void* from, void* to, std::size_t count, ncclDataType_t type, int peer = 0) {
  return {.kind = kind,
          .from = static_cast<const std::byte*>(from),
          .to = static_cast<std::byte*>(to),
          .count = static_cast<std::int64_t>(count),
          .dtype = dtype_of(type),
          .peer = peer};
}

/// Waits until a member's kernels have ended and no graph holds it any more.
void drain(std::unique_lock<std::recursive_mutex>& lock, Member& member, const char* call) {
  const auto limit = std::chrono::steady_clock::now() + machine().patience;
  if (!changed.wait_until(lock, limit, [&] { return member.running == 0 && member.persistent == 0; }))
    machine().problem(message(call, " blocks: ", member.persistent, " graphs hold collectives of the communicator, ",
                              member.running, " kernels run"));
}

void advance_split(Member& member) {
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

/// With what is registered with it, as the library's cleanup does.
void leave(ncclComm_t comm) {
  machine().hold("registrations", -members.at(comm)->registrations);
  members.erase(comm);
  machine().hold("communicators", -1);
}

}  // namespace

void fsdp::testing::cuda_host::fail_nccl(int rank, ncclResult_t result) {
  const std::lock_guard lock(machine().mutex);
  failures[rank] = result;
}
void fsdp::testing::cuda_host::tell_of_nccl_aborts(bool tell) {
  const std::lock_guard lock(machine().mutex);
  tells_of_aborts = tell;
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclRemoteError ? "remote error" : "another error";
}
const char* ncclGetLastError(ncclComm_t) { return "the double's"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::int64_t made = 0;
  const std::lock_guard lock(machine().mutex);
  *id = {};
  ++made;
  std::memcpy(id->internal, &made, sizeof made);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) machine().problem("NCCL: a communicator that blocks");
  BEGIN();
  const std::lock_guard lock(machine().mutex);
  static std::map<std::string, std::shared_ptr<World>> worlds;
  std::shared_ptr<World>& world = worlds[std::string(id.internal, sizeof id.internal)];
  if (world == nullptr) world = std::make_shared<World>(size);
  *comm = enter(world, rank);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  BEGIN();
  if (config == nullptr || config->blocking != 0) machine().problem("NCCL: a communicator that blocks");
  const std::lock_guard lock(machine().mutex);
  Member& member = *members.at(comm);
  if (color < 0) return ncclInvalidArgument;
  member.world->splits[member.splits][member.rank] = {color, key};
  member.split_result = made;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  BEGIN();
  const std::lock_guard lock(machine().mutex);
  members.at(comm)->finalized = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  std::unique_lock lock(machine().mutex);
  const auto member = members.at(comm);
  drain(lock, *member, "ncclCommDestroy");
  leave(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::unique_lock lock(machine().mutex);
  const auto member = members.at(comm);
  member->aborted = member->world->aborted = true;
  changed.notify_all();
  drain(lock, *member, "ncclCommAbort");
  leave(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  BEGIN();
  const std::lock_guard lock(machine().mutex);
  const auto member = members.at(comm);
  const World& world = *member->world;
  if (const auto failed = failures.find(member->rank); failed != failures.end() && failed->second != ncclSuccess) {
    *state = failed->second;
    return ncclSuccess;
  }
  if (world.aborted && tells_of_aborts) {
    *state = ncclRemoteError;
    return ncclSuccess;
  }
  if (world.joined >= world.size) {
    advance_split(*member);
    launch(member);
  }
  const bool ending = member->finalized && (member->running > 0 || member->persistent > 0);
  const bool busy = world.joined < world.size || member->split_result != nullptr || !member->asked.empty();
  *state = busy || ending ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  if (machine().enter(__func__, true) != cudaSuccess) {
    open_calls.clear();
    return ncclUnhandledCudaError;
  }
  const std::lock_guard lock(machine().mutex);
  for (auto& [comm, group] : std::exchange(open_calls, {})) {
    if (group.calls.empty()) continue;
    Member& member = *members.at(comm);
    member.world->connected.insert(member.rank);
    member.asked.push_back(std::move(group));
  }
  return ncclInProgress;
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::all_gather, from, to, count, type), stream);
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::all_reduce, from, to, count, type), stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::broadcast, from, to, count, type, root), stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t, int root,
                        ncclComm_t comm, cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::reduce, from, to, count, type, root), stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::reduce_scatter, from, to, count, type), stream);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::send, from, nullptr, count, type, peer), stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  BEGIN();
  return add(comm, call_of(Call::Kind::receive, nullptr, to, count, type, peer), stream);
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  BEGIN();
  *data = machine().allocate(bytes, false);
  return *data == nullptr ? ncclSystemError : ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  BEGIN();
  if (!machine().idle()) machine().problem("ncclMemFree while the device has work that may use the memory");
  return machine().free(data, false) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  BEGIN();
  const std::lock_guard lock(machine().mutex);
  if (members.count(comm) == 0) return ncclInvalidArgument;
  const Block* const block = machine().block_of(data, bytes);
  if (block == nullptr || block->bytes == 0) return ncclInvalidArgument;
  *handle = data;
  ++members.at(comm)->registrations;
  machine().hold("registrations", 1);
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  const std::lock_guard lock(machine().mutex);
  if (members.count(comm) == 0) return ncclInvalidArgument;
  --members.at(comm)->registrations;
  machine().hold("registrations", -1);
  return ncclSuccess;
}
}
