// SPDX-License-Identifier: Apache-2.0
/// @file
/// NCCL as Tessera calls it: a table of functions in types of our own, so that only one source needs nccl.h, and tests
/// can stand in for the library.
///
/// Functions do what the library's of the same name do; a communicator is never blocking (ncclConfig's blocking = 0).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include <fsdp/core/dtype.hpp>

struct ncclComm;  // NCCL's own

namespace fsdp::comm::nccl {

using Comm = ::ncclComm*;
using Stream = void*;  ///< cudaStream_t
using Id = std::array<std::byte, 128>;

/// ncclResult_t.
enum class Result : int {
  success,
  unhandled_cuda_error,
  system_error,
  internal_error,
  invalid_argument,
  invalid_usage,
  remote_error,
  in_progress
};

/// One call of a group. Sums are of floats.
struct Call {
  enum class Kind : std::uint8_t { all_gather, all_reduce, broadcast, reduce, reduce_scatter, send, receive };

  Kind kind = Kind::all_gather;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t count = 0;  ///< elements, as the function of this name counts them
  DType dtype = DType::u8;
  int peer = 0;  ///< root of a broadcast or reduce; other side of a send or receive
};

struct Table {
  int (*version)();  ///< NCCL_VERSION_CODE of the library that runs
  Result (*get_unique_id)(Id& id);
  Result (*init)(Comm& made, int size, const Id& id, int rank);
  /// `made` is set at some time until the state of `comm` says that it is done.
  Result (*split)(Comm comm, int color, int key, Comm& made);
  Result (*finalize)(Comm comm);
  Result (*destroy)(Comm comm);
  Result (*abort)(Comm comm);
  Result (*async_error)(Comm comm, Result& state);
  const char* (*error_string)(Result result);
  const char* (*last_error)(Comm comm);  ///< of the library; `comm` may be null

  Result (*group_start)();
  Result (*group_end)();
  Result (*call)(const Call& call, Comm comm, Stream stream);

  // Null where the library is older than 2.19.
  Result (*mem_alloc)(void*& data, std::size_t bytes);
  Result (*mem_free)(void* data);  ///< after waiting for the device
  Result (*register_memory)(Comm comm, void* data, std::size_t bytes, void*& handle);
  Result (*deregister_memory)(Comm comm, void* handle);
};

/// The library that this program was linked with (tessera::nccl).
const Table& library();

/// One rank's seat in a world of ranks. All have the same id, which one of them made with get_unique_id.
struct Seat {
  int rank = 0;
  int size = 1;
  Id id{};
};

/// Throws CollectiveError where NCCL cannot make one.
Id make_id(const Table& table);

}  // namespace fsdp::comm::nccl
