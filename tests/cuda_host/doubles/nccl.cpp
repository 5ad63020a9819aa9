// SPDX-License-Identifier: Apache-2.0
/// @file
/// A fake NCCL: ranks are threads or processes of one machine, and collectives are kernels that wait for their peers.
///
/// Rules: NCCL 2.28.9's documentation and source. Communicators are non-blocking; the first group waits for the hosts
/// of all peers, and every group for their devices. Collectives of a communicator run in the order in which the host
/// launched them or their graphs, on any streams (strongstream.cc). A captured collective belongs to its graph:
/// finalizing or aborting blocks until the graph is destroyed (init.cc, commDestroySync). ncclMemFree does not wait for
/// kernels. An abort is reported to ranks on other hosts (NCCL_HOSTID) only. One collective kernel of a device runs at
/// a time (nccl_admission.hpp). Sums have an order that is drawn from a seed and the number of ranks, as Ring's;
/// without NCCL_NVLS_ENABLE=0 it is another in each call, as that of NVLS. Variables are read when a communicator is
/// initialised; TESSERA_DOUBLE_SEED is the seed.
#include <nccl.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tessera/comm/transfer.hpp>
#include <tessera/fsdp/device/device.hpp>
#include <tessera/fsdp/testing/nccl/calls.hpp>

#include "machine.hpp"
#include "nccl.hpp"
#include "nccl_admission.hpp"
#include "nccl_world.hpp"

namespace {

using fsdp::message;
using fsdp::comm::nccl::Call;
using namespace fsdp::testing;
using namespace fsdp::testing::cuda_host;

/// A device with immediate queues: a rank's copies and sums run in the thread of its kernel.
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

struct Asked {
  NcclCalls calls;
  cudaStream_t stream;
};
struct Member {
  std::shared_ptr<NcclWorld> world;
  std::string name;  ///< name of the world
  std::string axis;  ///< "world", or the split of it that made this communicator
  int rank = 0;
  int device = 0;
  NcclAdmission* admission = nullptr;
  std::vector<Asked> asked;   ///< groups that the host has not launched yet
  std::int64_t launched = 0;  ///< number of launched collectives; each launch of a graph counts
  std::atomic<std::int64_t> executed = 0;
  std::int64_t splits = 0;
  ncclComm_t* split_result = nullptr;
  int running = 0;     ///< kernels that are queued or running
  int persistent = 0;  ///< graphs that contain collectives of this communicator
  std::multimap<const std::byte*, std::size_t> registered = {};  ///< buffers by their begin
  bool finalized = false;
  std::atomic<bool> aborted = false;
};

/// Guarded by the machine's mutex. Never destroyed: threads of streams may outlive main.
struct Library {
  std::string folder;  ///< folder of worlds that processes share
  std::map<ncclComm_t, std::shared_ptr<Member>> members;
  std::map<int, ncclResult_t> failures;
  std::map<int, std::chrono::milliseconds> delays;
  std::chrono::milliseconds start_delay{0};
  bool tells_of_aborts = false;
  int version = NCCL_VERSION_CODE;
  std::map<std::string, int> by_registered = {};
  std::map<int, NcclAdmission*> admissions;  ///< by device; never destroyed
  bool keeps_order = true, ordered = false, nvls = true;
  std::uint64_t seed = 1;
  std::atomic<std::uint64_t> hung = 0;  ///< the machine's generation, plus 1, in which kernels waited for each other

  void read_environment() {
    const auto number = [](const char* name, std::uint64_t otherwise) {
      const char* const value = std::getenv(name);
      return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
    };
    ordered = keeps_order && number("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
    nvls = number("NCCL_NVLS_ENABLE", 2) != 0;
    seed = number("TESSERA_DOUBLE_SEED", 1);
  }
};
Library& library() {
  static auto* const library = new Library;
  return *library;
}
Member& member_of(ncclComm_t comm) { return *library().members.at(comm); }

thread_local int depth = 0;
thread_local std::map<ncclComm_t, Asked> open_calls;

ncclComm_t enter(const std::string& name, const std::string& axis, int size, int rank) {
  const auto made = std::make_shared<Member>();
  made->world = NcclWorld::open(library().folder, name, size);
  made->name = name;
  made->axis = axis;
  made->rank = rank;
  made->device = machine().device();
  NcclAdmission*& admission = library().admissions[made->device];
  if (admission == nullptr) admission = new NcclAdmission(made->device);
  made->admission = admission;
  const char* const host = std::getenv("NCCL_HOSTID");
  made->world->join(rank, host == nullptr ? 0 : std::hash<std::string>()(host));
  const auto handle = reinterpret_cast<ncclComm_t>(made.get());
  library().members[handle] = made;
  machine().hold("communicators", 1);
  return handle;
}

/// Begins a call. Returns an error from it if a test makes this call fail.
#define BEGIN() \
  if (machine().enter(__func__, true) != cudaSuccess) return ncclUnhandledCudaError

/// The order of a turn's sums; see NcclPart.
std::uint64_t order_of_sums(const Member& member, std::int64_t turn) {
  const std::lock_guard lock(machine().mutex);
  const auto ranks = static_cast<std::uint64_t>(member.world->size());
  if (!library().nvls) return library().seed + ranks;
  return 1 + std::hash<std::string>()(member.name) / 2 + static_cast<std::uint64_t>(turn);
}

/// A launch of a kernel: its number among those of the communicator, and on the device.
struct Turn {
  std::int64_t number, kernel;
};

/// A kernel: waits for its turn, for the device and for its peers, then does this rank's part.
void execute(Member& member, const NcclCalls& calls, Turn launched, std::uint64_t generation) {
  const std::int64_t turn = launched.number;
  NcclWorld& world = *member.world;
  const std::shared_ptr<void> ends(nullptr, [&](void*) { member.admission->end(launched.kernel); });
  std::unique_lock settings(machine().mutex);
  const bool ordered = library().ordered;
  const std::uint64_t seed = library().seed;
  settings.unlock();
  const auto gone = [&] {
    return member.aborted || library().hung == generation + 1 || machine().generation() != generation;
  };
  const auto wait_until = [&](const auto& reached) {
    for (;;) {
      const std::uint32_t seen = world.changes();
      if (reached()) return true;
      if (gone()) return false;
      world.wait(seen);
    }
  };
  if (!wait_until([&] { return member.executed == turn; }) || member.aborted) return;
  if (!member.admission->admit(launched.kernel, ordered, seed, gone)) return;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  const auto report_hang = [&] {  // also ends the kernels, which the library would not
    if (ordered || !member.admission->is_contended() || std::chrono::steady_clock::now() < limit) return;
    if (library().hung.exchange(generation + 1) == generation + 1) return;
    machine().problem(message("NCCL: rank ", member.rank, " of communicator ", member.name,
                              " waits for its peers while another communicator's kernel waits for the device; without "
                              "NCCL_LAUNCH_ORDER_IMPLICIT=1 their order differs between ranks"));
  };
  std::string problem = world.publish(member.rank, turn, calls);
  if (!problem.empty()) machine().problem("NCCL: " + problem);
  if (problem.empty() && wait_until([&] { return report_hang(), world.published(turn); })) {
    const NcclCallsByRank group = world.group(turn);
    problem = disagreement_of(group);
    if (problem.empty()) {
      std::unique_lock lock(machine().mutex);
      const auto delay = library().delays[member.rank];
      lock.unlock();
      std::this_thread::sleep_for(delay);
      AtOnce::Queue queue;
      NcclPart<AtOnce>(queue, member.rank, group, order_of_sums(member, turn)).finish();
    } else if (member.rank == 0) {  // all ranks detect it; one reports it
      machine().problem("NCCL: " + problem);
    }
  }
  if (!problem.empty()) wait_until([] { return false; });
  ++member.executed;
  world.changed();
}

/// The host's part: launches groups on the device once the hosts of all ranks have reached their first group.
void launch(const std::shared_ptr<Member>& member) {
  if (!member->world->connected()) return;
  for (Asked& group : std::exchange(member->asked, {})) {
    const auto stream = machine().find(group.stream);
    const auto capture = stream ? stream->capture : nullptr;
    const std::uint64_t generation = machine().generation();
    const auto turns = std::make_shared<std::deque<Turn>>();
    const auto take_turn = [member, turns] {
      turns->push_back({.number = member->launched++, .kernel = member->admission->launch()});
    };
    if (capture) {
      ++member->persistent;
      capture->graph()->launches.push_back(take_turn);
      capture->graph()->holds.push_back(std::shared_ptr<void>(nullptr, [member](void*) {
        const std::lock_guard lock(machine().mutex);
        --member->persistent;
        member->world->changed();
      }));
    } else {
      ++member->running;
      take_turn();
    }
    machine().submit(group.stream, [member, turns, calls = group.calls, generation, once = !capture] {
      std::unique_lock lock(machine().mutex);
      const Turn turn = turns->front();
      turns->pop_front();
      lock.unlock();
      execute(*member, calls, turn, generation);
      lock.lock();
      if (once) --member->running;
      member->world->changed();
    });
  }
}

ncclResult_t add(ncclComm_t comm, const Call& call, cudaStream_t stream) {
  const std::lock_guard lock(machine().mutex);
  Member& member = member_of(comm);
  std::string refusal = refusal_of(call, member.rank, member.world->size());
  if (depth == 0) refusal = "not in a group";
  if (!member.asked.empty()) refusal = "the communicator is not done with the group before";
  if (open_calls[comm].calls.size() == 2048) refusal = "more calls in a group than NCCL takes";
  const auto bytes = static_cast<std::size_t>(call.count * fsdp::size_of(call.dtype));
  for (const std::byte* data : {call.from, static_cast<const std::byte*>(call.to)})
    if (data != nullptr) {
      if (!machine().is_allocated(data, bytes))
        refusal = "it leaves device memory";
      else if (machine().block_of(data, bytes)->device != member.device)
        refusal = "memory of another device";
    }
  if (!refusal.empty()) {
    machine().problem(message("NCCL: rank ", member.rank, ", ", words(call), ": ", refusal));
    return ncclInvalidArgument;
  }
  if (call.from != nullptr && call.to != nullptr) {
    const auto is_registered = [&](const std::byte* data) {
      return std::ranges::any_of(member.registered, [&](const auto& buffer) {
        return data >= buffer.first && data + bytes <= buffer.first + buffer.second;
      });
    };
    const int sides = (is_registered(call.from) ? 1 : 0) + (is_registered(call.to) ? 1 : 0);
    ++library().by_registered[message(member.axis, ", ", sides, " registered")];
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

/// Waits until the member's kernels have ended and no graph contains its collectives.
void drain(const Member& member, const char* call) {
  const auto limit = std::chrono::steady_clock::now() + machine().patience;
  for (;;) {
    const std::uint32_t seen = member.world->changes();
    std::unique_lock lock(machine().mutex);
    if (member.running == 0 && member.persistent == 0) return;
    if (std::chrono::steady_clock::now() > limit)
      return machine().problem(message(call, " blocks: ", member.persistent,
                                       " graphs hold collectives of the communicator, ", member.running,
                                       " kernels run"));
    lock.unlock();
    member.world->wait(seen);
  }
}

void advance_split(Member& member) {
  if (member.split_result == nullptr) return;
  const auto part = member.world->part_of(member.rank, member.splits);
  if (!part) return;
  const std::string name = message(member.name, ".", member.splits, ".", part->color);
  *std::exchange(member.split_result, nullptr) = enter(name, message("split ", member.splits), part->size, part->rank);
  ++member.splits;
}

/// Destroys a communicator and its registrations, as the library's cleanup does.
void leave(ncclComm_t comm, const char* call, bool aborts) {
  std::unique_lock lock(machine().mutex);
  const auto member = library().members.at(comm);
  lock.unlock();
  if (aborts) {
    member->aborted = true;
    member->world->abort();
  }
  drain(*member, call);
  lock.lock();
  machine().hold("registrations", -static_cast<int>(member->registered.size()));
  library().members.erase(comm);
  machine().hold("communicators", -1);
}

}  // namespace

void fsdp::testing::cuda_host::fail_nccl(int rank, ncclResult_t result) {
  const std::lock_guard lock(machine().mutex);
  library().failures[rank] = result;
}
void fsdp::testing::cuda_host::tell_of_nccl_aborts(bool tell) {
  const std::lock_guard lock(machine().mutex);
  library().tells_of_aborts = tell;
}
void fsdp::testing::cuda_host::slow_nccl(int rank, std::chrono::milliseconds by) {
  const std::lock_guard lock(machine().mutex);
  library().delays[rank] = by;
}
std::map<std::string, int> fsdp::testing::cuda_host::take_calls_by_registered_buffers() {
  const std::lock_guard lock(machine().mutex);
  return std::exchange(library().by_registered, {});
}
void fsdp::testing::cuda_host::keep_nccl_launch_order(bool keep) {
  const std::lock_guard lock(machine().mutex);
  library().keeps_order = keep;
}
void fsdp::testing::cuda_host::set_nccl_version(int version) {
  const std::lock_guard lock(machine().mutex);
  library().version = version;
}
void fsdp::testing::cuda_host::slow_nccl_start(std::chrono::milliseconds by) { library().start_delay = by; }
void fsdp::testing::cuda_host::share_nccl(const std::string& folder) {
  const std::lock_guard lock(machine().mutex);
  library().folder = folder;
}

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  const std::lock_guard lock(machine().mutex);
  *version = library().version;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  const std::lock_guard lock(machine().mutex);
  *rank = member_of(comm).rank;
  return ncclSuccess;
}
ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
  const std::lock_guard lock(machine().mutex);
  *size = member_of(comm).world->size();
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
  const std::string name = message("nccl.", ::getpid(), ".", ++made);
  std::memcpy(id->internal, name.c_str(), name.size());
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) machine().problem("NCCL: a communicator that blocks");
  BEGIN();
  std::this_thread::sleep_for(library().start_delay);
  const std::lock_guard lock(machine().mutex);
  library().read_environment();
  *comm = enter(id.internal, "world", size, rank);
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  BEGIN();
  if (config == nullptr || config->blocking != 0) machine().problem("NCCL: a communicator that blocks");
  const std::lock_guard lock(machine().mutex);
  Member& member = member_of(comm);
  if (color < 0) return ncclInvalidArgument;
  member.world->vote(member.rank, member.splits, {color, key});
  member.split_result = made;
  return ncclInProgress;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  BEGIN();
  const std::lock_guard lock(machine().mutex);
  member_of(comm).finalized = true;
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  leave(comm, __func__, false);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  leave(comm, __func__, true);
  return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  BEGIN();
  const std::lock_guard lock(machine().mutex);
  const auto member = library().members.at(comm);
  const NcclWorld& world = *member->world;
  const auto& failures = library().failures;
  if (const auto failed = failures.find(member->rank); failed != failures.end() && failed->second != ncclSuccess) {
    *state = failed->second;
    return ncclSuccess;
  }
  if (library().hung == machine().generation() + 1) {
    *state = ncclInternalError;
    return ncclSuccess;
  }
  if (world.aborted() && (library().tells_of_aborts || !world.on_one_host())) {
    *state = ncclRemoteError;
    return ncclSuccess;
  }
  const bool all_there = world.joined() >= world.size();
  if (all_there) {
    advance_split(*member);
    launch(member);
  }
  const bool ending = member->finalized && (member->running > 0 || member->persistent > 0);
  const bool busy = !all_there || member->split_result != nullptr || !member->asked.empty();
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
    Member& member = member_of(comm);
    member.world->connect(member.rank);
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
  if (library().members.count(comm) == 0) return ncclInvalidArgument;
  if (!machine().is_allocated(data, bytes)) return ncclInvalidArgument;
  *handle = data;
  member_of(comm).registered.emplace(static_cast<const std::byte*>(data), bytes);
  machine().hold("registrations", 1);
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void* handle) {
  const std::lock_guard lock(machine().mutex);
  if (library().members.count(comm) == 0) return ncclInvalidArgument;
  auto& registered = member_of(comm).registered;
  const auto found = registered.find(static_cast<const std::byte*>(handle));
  if (found == registered.end()) return ncclInvalidArgument;
  registered.erase(found);
  machine().hold("registrations", -1);
  return ncclSuccess;
}
}
