// SPDX-License-Identifier: Apache-2.0
/// @file
/// The function table of the NCCL library. The only source that includes nccl.h.
#include <bit>

#include <nccl.h>

#include <tessera/comm/nccl_table.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm::nccl {
namespace {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "fsdp: NCCL 2.18 or later is needed, for ncclCommSplit");
static_assert(sizeof(Id) == sizeof(ncclUniqueId), "fsdp: this NCCL has another unique id");
static_assert(static_cast<int>(Result::in_progress) == ncclInProgress);

Result ours(ncclResult_t result) { return static_cast<Result>(result); }

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i64: return ncclInt64;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  throw LogicError("NCCL has no such element type");
}

ncclConfig_t not_blocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

int version() {
  int code = 0;
  return ncclGetVersion(&code) == ncclSuccess ? code : 0;
}

Result get_unique_id(Id& id) {
  ncclUniqueId made{};
  const Result result = ours(ncclGetUniqueId(&made));
  id = std::bit_cast<Id>(made);
  return result;
}

Result init(Comm& made, int size, const Id& id, int rank) {
  ncclConfig_t config = not_blocking();
  return ours(ncclCommInitRankConfig(&made, size, std::bit_cast<ncclUniqueId>(id), rank, &config));
}

Result split(Comm comm, int color, int key, Comm& made) {
  ncclConfig_t config = not_blocking();
  return ours(ncclCommSplit(comm, color, key, &made, &config));
}

Result async_error(Comm comm, Result& state) {
  ncclResult_t theirs = ncclSuccess;
  const Result result = ours(ncclCommGetAsyncError(comm, &theirs));
  state = ours(theirs);
  return result;
}

Result call(const Call& call, Comm comm, Stream queue) {
  const auto count = static_cast<std::size_t>(call.count);
  const ncclDataType_t type = type_of(call.dtype);
  auto* const stream = static_cast<cudaStream_t>(queue);
  switch (call.kind) {
    case Call::Kind::all_gather: return ours(ncclAllGather(call.from, call.to, count, type, comm, stream));
    case Call::Kind::all_reduce: return ours(ncclAllReduce(call.from, call.to, count, type, ncclSum, comm, stream));
    case Call::Kind::broadcast: return ours(ncclBroadcast(call.from, call.to, count, type, call.peer, comm, stream));
    case Call::Kind::reduce: return ours(ncclReduce(call.from, call.to, count, type, ncclSum, call.peer, comm, stream));
    case Call::Kind::reduce_scatter:
      return ours(ncclReduceScatter(call.from, call.to, count, type, ncclSum, comm, stream));
    case Call::Kind::send: return ours(ncclSend(call.from, count, type, call.peer, comm, stream));
    case Call::Kind::receive: return ours(ncclRecv(call.to, count, type, call.peer, comm, stream));
  }
  return Result::invalid_argument;
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
/// Waits for the device first: unlike cudaFree, ncclMemFree does not, and kernels may still use the memory while an
/// error unwinds.
Result mem_free(void* data) {
  static_cast<void>(cudaDeviceSynchronize());  // an error shows in a later call that can throw
  return ours(ncclMemFree(data));
}
#endif

Table make_table() {
  return {
    .version = version, .least_version = NCCL_VERSION_CODE >= 21900 ? 21900 : 21800, .get_unique_id = get_unique_id,
    .init = init, .split = split, .finalize = [](Comm comm) { return ours(ncclCommFinalize(comm)); },
    .destroy = [](Comm comm) { return ours(ncclCommDestroy(comm)); },
    .abort = [](Comm comm) { return ours(ncclCommAbort(comm)); }, .async_error = async_error,
    .error_string = [](Result result) { return ncclGetErrorString(static_cast<ncclResult_t>(result)); },
    .last_error = [](Comm comm) { return ncclGetLastError(comm); },
    .rank = [](Comm comm, int& rank) { return ours(ncclCommUserRank(comm, &rank)); },
    .size = [](Comm comm, int& size) { return ours(ncclCommCount(comm, &size)); },
    .group_start = [] { return ours(ncclGroupStart()); }, .group_end = [] { return ours(ncclGroupEnd()); },
    .call = call,
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
    .mem_alloc = [](void*& data, std::size_t bytes) { return ours(ncclMemAlloc(&data, bytes)); }, .mem_free = mem_free,
    .register_memory = [](Comm comm, void* data, std::size_t bytes,
                          void*& handle) { return ours(ncclCommRegister(comm, data, bytes, &handle)); },
    .deregister_memory = [](Comm comm, void* handle) { return ours(ncclCommDeregister(comm, handle)); },
#endif
  };
}

}  // namespace

const Table& library() {
  static const Table table = make_table();
  return table;
}

}  // namespace fsdp::comm::nccl
