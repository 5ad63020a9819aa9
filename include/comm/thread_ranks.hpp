// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators of threads that the program owns. Threads::run makes its threads itself; this makes none.
///
///     comm::ThreadRanks ranks(2);
///     // on thread 0:                     // on thread 1:
///     auto c = ranks.join(0);             auto c = ranks.join(1);
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <memory>
#include <string_view>

#include <tessera/comm/threads.hpp>

namespace fsdp::comm {

class ThreadsGroup;

/// The ranks of one job on threads of the caller's. Several may live in a process at once, and share nothing. The
/// object may end before the communicators that it has made.
///
/// If a rank fails, all collectives of the others throw CollectiveError, which names it: at once if an exception
/// destroys a communicator of the rank or `fail` is called; at the deadline if its thread stays away. The caller may go
/// on with a new object.
class ThreadRanks {
 public:
  /// Makes no thread. Throws InputError unless `ranks` is at least 1. Options::threads is 1 if it is not set.
  explicit ThreadRanks(int ranks, const Options& options = {});

  int size() const;  ///< the number of ranks
  /// Returns the communicator of `rank`. Call it once per rank, on the thread that will use it; returns at once. Throws
  /// InputError for a rank that does not exist or has joined.
  template <class DeviceType = device::Cpu>
  Threads<DeviceType> join(int rank) {
    return Threads<DeviceType>(comm::core_of<DeviceType>(joined(rank)));
  }
  /// Says that `rank` will make no more calls, and why. Any thread may call it, more than once: the first reason
  /// counts. Throws InputError for a rank that does not exist.
  void fail(int rank, std::string_view why);

 private:
  std::unique_ptr<ThreadsRank> joined(int rank);
  void require_rank(int rank) const;

  Options options_;
  std::shared_ptr<ThreadsGroup> group_;
};

}  // namespace fsdp::comm
