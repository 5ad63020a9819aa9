// SPDX-License-Identifier: Apache-2.0
/// @file
/// The NCCL interface that Tessera calls: a table of functions with Tessera's own types, so that only one source file
/// needs nccl.h and tests can replace the library.
///
/// Functions behave like the NCCL functions of the same name. Communicators are always nonblocking (ncclConfig_t's
/// blocking = 0).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include <tessera/fsdp/core/dtype.hpp>

struct ncclComm;  // NCCL's own type

namespace fsdp::comm::nccl {

using Comm = ::ncclComm*;
using Stream = void*;  ///< a cudaStream_t
using Id = std::array<std::byte, 128>;

/// The order in which kernels of several communicators of one device start: NCCL_LAUNCH_ORDER_IMPLICIT (since 2.26), 1
/// for `implicit`: that of the host's calls. Without it, two ranks may wait for each other's kernels forever.
enum class LaunchOrder : int { unknown, none, implicit };
/// Whether NVSwitches may sum floats (NCCL_NVLS_ENABLE), in an order that differs between calls.
enum class Nvls : std::uint8_t { unknown, allowed, off };

/// The settings that a process made before its first call of NCCL.
struct Settings {
  LaunchOrder launch_order = LaunchOrder::unknown;
  Nvls nvls = Nvls::unknown;
  std::string text = {};  ///< the environment variables in force, for logs
};

/// Sets NCCL_LAUNCH_ORDER_IMPLICIT=1 and, unless `fast_reductions`, NCCL_NVLS_ENABLE=0, each only if the user has not
/// (an empty value counts as not set). Returns what is in force, also of other variables of the user that change the
/// order of sums. For programs: before the process's first call of NCCL, which reads each variable once, and before
/// other threads read the environment. Throws InputError if `fast_reductions` comes after a call without it.
Settings set_environment(bool fast_reductions);

/// NCCL's ncclResult_t.
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

/// One NCCL call within a group. Sums are of floats.
struct Call {
  enum class Kind : std::uint8_t { all_gather, all_reduce, broadcast, reduce, reduce_scatter, send, receive };

  Kind kind = Kind::all_gather;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::int64_t count = 0;  ///< number of elements, as the NCCL function of this name defines it
  DType dtype = DType::u8;
  int peer = 0;  ///< root of a broadcast or reduce; peer of a send or receive
};

struct Table {
  int (*version)();       ///< returns NCCL_VERSION_CODE of the loaded library
  int least_version = 0;  ///< oldest version that has all functions of the table
  Result (*get_unique_id)(Id& id);
  Result (*init)(Comm& made, int size, const Id& id, int rank);
  /// NCCL may set `made` late: it is valid once async_error(comm) no longer reports in_progress.
  Result (*split)(Comm comm, int color, int key, Comm& made);
  Result (*finalize)(Comm comm);
  Result (*destroy)(Comm comm);
  Result (*abort)(Comm comm);
  Result (*async_error)(Comm comm, Result& state);
  const char* (*error_string)(Result result);
  const char* (*last_error)(Comm comm);  ///< returns NCCL's last error message; `comm` may be null
  Result (*rank)(Comm comm, int& rank);
  Result (*size)(Comm comm, int& size);

  Result (*group_start)();
  Result (*group_end)();
  Result (*call)(const Call& call, Comm comm, Stream stream);

  // Null if Tessera was compiled with an nccl.h older than 2.19.
  Result (*mem_alloc)(void*& data, std::size_t bytes) = nullptr;
  Result (*mem_free)(void* data) = nullptr;  ///< waits until the device is idle before it frees
  Result (*register_memory)(Comm comm, void* data, std::size_t bytes, void*& handle) = nullptr;
  Result (*deregister_memory)(Comm comm, void* handle) = nullptr;
};

/// Returns the table of the NCCL library that this program is linked with (tessera::nccl).
const Table& library();

/// Throws InputError if the loaded library is older than the table needs.
void require_version(const Table& table);

/// One rank's place in an NCCL communicator. All ranks pass the same id, which one of them created with get_unique_id.
struct Seat {
  int rank = 0;
  int size = 1;
  Id id{};
  Settings settings = {};
};

/// Returns a new unique id. Throws CollectiveError if NCCL cannot make one.
Id make_id(const Table& table);

}  // namespace fsdp::comm::nccl
