// SPDX-License-Identifier: Apache-2.0
/// @file
/// The functions of the fake NCCL on the machine whose GPUs are threads.
///
/// One collective kernel of a device runs at a time (admission.hpp). ncclMemFree does not wait for kernels. Variables
/// are read when a communicator is initialised: NCCL_LAUNCH_ORDER_IMPLICIT; NCCL_NVLS_ENABLE, without 0 in which sums
/// have another order in each call; TESSERA_DOUBLE_SEED.
#include "nccl.hpp"

#include <bit>
#include <cstdlib>
#include <deque>
#include <memory>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "machine.hpp"

namespace fsdp::testing::cuda_host {
namespace {

using comm::nccl::Call;

class CudaNccl : public FakeNccl {
 public:
  CudaNccl() : FakeNccl(machine().mutex, false) { version = NCCL_VERSION_CODE; }

 private:
  void problem(const std::string& text) override { machine().problem(text); }
  void hold(const char* kind, int by) override { machine().hold(kind, by); }
  std::uint64_t generation() const override { return machine().generation(); }
  std::chrono::milliseconds patience() const override { return machine().patience; }

  void prepare(NcclMember& member) override {
    member.device = machine().device();
    member.admission = &admissions_.try_emplace(member.device, member.device).first->second;
  }

  void read_environment() override {
    const auto number = [](const char* name, std::uint64_t otherwise) {
      const char* const value = std::getenv(name);
      return value == nullptr ? otherwise : std::strtoull(value, nullptr, 0);
    };
    ordered = keeps_order && number("NCCL_LAUNCH_ORDER_IMPLICIT", 0) != 0;
    sums = number("NCCL_NVLS_ENABLE", 2) != 0 ? NcclSumOrder::in_changing_order : NcclSumOrder::in_fixed_order;
    seed = number("TESSERA_DOUBLE_SEED", 1);
  }

  std::string refusal_of(const NcclMember& member, const Call& call, Stream) const override {
    const auto bytes = static_cast<std::size_t>(call.count * size_of(call.dtype));
    for (const std::byte* data : {call.from, static_cast<const std::byte*>(call.to)}) {
      if (data == nullptr) continue;
      if (!machine().is_allocated(data, bytes)) return "it leaves device memory";
      if (machine().block_of(data, bytes)->device != member.device) return "memory of another device";
    }
    return "";
  }

  bool can_register(const void* data, std::size_t bytes) const override { return machine().is_allocated(data, bytes); }

  void enqueue(const std::shared_ptr<NcclMember>& member, NcclGroup group) override {
    auto* const native = static_cast<cudaStream_t>(group.stream);
    const auto stream = machine().find(native);
    const auto capture = stream ? stream->capture : nullptr;
    const auto turns = std::make_shared<std::deque<std::pair<std::int64_t, std::int64_t>>>();
    const auto take_turn = [member, turns] { turns->emplace_back(member->launched++, member->admission->launch()); };
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
    const auto kernel = [this, member, turns, calls = std::move(group.calls), begun = generation(), once = !capture] {
      std::unique_lock lock(machine().mutex);
      const auto [turn, number] = turns->front();
      turns->pop_front();
      lock.unlock();
      execute(*member, calls, turn, number, begun);
      if (once) --member->running;
      member->world->changed();
    };
    machine().submit(native, kernel);
  }

  std::map<int, NcclAdmission> admissions_;  ///< by device
};

}  // namespace

FakeNccl& nccl() {
  static auto* const fake = new CudaNccl;  // never destroyed: threads of streams may outlive main
  return *fake;
}

}  // namespace fsdp::testing::cuda_host

namespace {

using fsdp::comm::nccl::Call;
using fsdp::comm::nccl::Id;
using namespace fsdp::testing::cuda_host;
using Kind = Call::Kind;
using Type = ncclDataType_t;
using Comm = ncclComm_t;
using CudaStream = cudaStream_t;

/// Returns f(), or an error if a test makes this function fail.
ncclResult_t checked(const char* function, const auto& f) {
  return machine().enter(function, true) == cudaSuccess ? static_cast<ncclResult_t>(f()) : ncclUnhandledCudaError;
}

void require_non_blocking(const ncclConfig_t* config) {
  if (config == nullptr || config->blocking != 0) machine().problem("NCCL: a communicator that blocks");
}

ncclResult_t add(const char* function, Kind kind, const void* from, void* to, std::size_t count, Type type, int peer,
                 Comm comm, CudaStream stream) {
  using enum fsdp::DType;
  constexpr fsdp::DType types[] = {u8, u8, i32, i32, i64, i64, f16, f32, f64, bf16};  // by ncclDataType_t
  const Call call{.kind = kind,
                  .from = static_cast<const std::byte*>(from),
                  .to = static_cast<std::byte*>(to),
                  .count = static_cast<std::int64_t>(count),
                  .dtype = types[type],
                  .peer = peer};
  return checked(function, [&] { return nccl().call(call, comm, stream); });
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) { return *version = nccl().version, ncclSuccess; }
ncclResult_t ncclCommUserRank(Comm comm, int* rank) { return *rank = nccl().member_of(comm).rank, ncclSuccess; }
ncclResult_t ncclCommCount(Comm comm, int* size) { return *size = nccl().member_of(comm).world->size(), ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess ? "no error" : result == ncclRemoteError ? "remote error" : "another error";
}
const char* ncclGetLastError(Comm) { return "the fake's"; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return static_cast<ncclResult_t>(nccl().get_unique_id(*reinterpret_cast<Id*>(id)));
}

ncclResult_t ncclCommInitRankConfig(Comm* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  require_non_blocking(config);
  return checked(__func__, [&] { return nccl().init(*comm, size, std::bit_cast<Id>(id), rank); });
}
ncclResult_t ncclCommSplit(Comm comm, int color, int key, Comm* made, ncclConfig_t* config) {
  require_non_blocking(config);
  return checked(__func__, [&] { return nccl().split(comm, color, key, *made); });
}
ncclResult_t ncclCommFinalize(Comm comm) {
  return checked(__func__, [&] { return nccl().finalize(comm); });
}
ncclResult_t ncclCommDestroy(Comm comm) { return nccl().leave(comm, __func__, false), ncclSuccess; }
ncclResult_t ncclCommAbort(Comm comm) { return nccl().leave(comm, __func__, true), ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(Comm comm, ncclResult_t* state) {
  return checked(__func__, [&] { return *state = static_cast<ncclResult_t>(nccl().state_of(comm)), ncclSuccess; });
}

ncclResult_t ncclGroupStart() { return static_cast<ncclResult_t>(nccl().group_start()); }
ncclResult_t ncclGroupEnd() {
  return static_cast<ncclResult_t>(nccl().group_end(machine().enter(__func__, true) != cudaSuccess));
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t n, Type type, Comm comm, CudaStream stream) {
  return add(__func__, Kind::all_gather, from, to, n, type, 0, comm, stream);
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t n, Type type, ncclRedOp_t, Comm comm,
                           CudaStream stream) {
  return add(__func__, Kind::all_reduce, from, to, n, type, 0, comm, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t n, Type type, int root, Comm comm,
                           CudaStream stream) {
  return add(__func__, Kind::broadcast, from, to, n, type, root, comm, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t n, Type type, ncclRedOp_t, int root, Comm comm,
                        CudaStream stream) {
  return add(__func__, Kind::reduce, from, to, n, type, root, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t n, Type type, ncclRedOp_t, Comm comm,
                               CudaStream stream) {
  return add(__func__, Kind::reduce_scatter, from, to, n, type, 0, comm, stream);
}
ncclResult_t ncclSend(const void* from, std::size_t n, Type type, int peer, Comm comm, CudaStream stream) {
  return add(__func__, Kind::send, from, nullptr, n, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t n, Type type, int peer, Comm comm, CudaStream stream) {
  return add(__func__, Kind::receive, nullptr, to, n, type, peer, comm, stream);
}

ncclResult_t ncclMemAlloc(void** data, std::size_t bytes) {
  *data = nullptr;
  const ncclResult_t result = checked(__func__, [&] { return *data = machine().allocate(bytes, false), ncclSuccess; });
  return result == ncclSuccess && *data == nullptr ? ncclSystemError : result;
}
ncclResult_t ncclMemFree(void* data) {
  return checked(__func__, [&] {
    if (!machine().idle()) machine().problem("ncclMemFree while the device has work that may use the memory");
    return machine().free(data, false) ? ncclSuccess : ncclInvalidArgument;
  });
}
ncclResult_t ncclCommRegister(const Comm comm, void* data, std::size_t bytes, void** handle) {
  return checked(__func__, [&] { return nccl().register_memory(comm, data, bytes, *handle); });
}
ncclResult_t ncclCommDeregister(const Comm comm, void* handle) {
  return static_cast<ncclResult_t>(nccl().deregister_memory(comm, handle));
}
}
