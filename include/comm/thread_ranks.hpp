// SPDX-License-Identifier: Apache-2.0
/// @file
/// Communicators of threads that the program owns. Threads::run makes its threads itself; this class makes no threads.
///
///     comm::ThreadRanks ranks(2);
///     // on thread 0:                     // on thread 1:
///     auto c = ranks.join(0);             auto c = ranks.join(1);
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <memory>
#include <string_view>

#include <tessera/comm/threads.hpp>

namespace fsdp::comm {

class ThreadsGroup;

/// The ranks of one job, on threads of the caller. Several jobs may coexist in a process; they share no state. This
/// object may be destroyed before the communicators that it made.
///
/// If a rank fails, all collectives of the others throw CollectiveError, which identifies it: immediately if an
/// exception destroys a communicator of the rank or `fail` is called; at the deadline if its thread makes no more
/// calls. The caller may continue with a new object.
class ThreadRanks {
 public:
  /// Makes no threads. Throws InputError unless `ranks` is at least 1. Options::threads defaults to 1 here.
  explicit ThreadRanks(int ranks, const Options& options = {});

  int size() const;  ///< the number of ranks
  /// Returns the communicator of `rank`. Call it once per rank, on the thread that will use it; returns immediately.
  /// Throws InputError for a rank that does not exist or has already joined.
  template <class DeviceType = device::Cpu>
  Threads<DeviceType> join(int rank) {
    return Threads<DeviceType>(comm::core_of<DeviceType>(joined(rank)));
  }
  /// Reports that `rank` will make no more calls, with the reason. Any thread may call it, more than once: the first
  /// reason counts. Throws InputError for a rank that does not exist.
  void fail(int rank, std::string_view why);

 private:
  std::unique_ptr<ThreadsRank> joined(int rank);
  void require_rank(int rank) const;

  Options options_;
  std::shared_ptr<ThreadsGroup> group_;
};

}  // namespace fsdp::comm
