// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank remembers of its collectives: options, the record, times and bytes, and what it waits for now.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/core/dtype.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::comm {

/// A collective that cannot finish: a deadline passed, ranks disagreed, or another rank failed.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

/// Kinds of collectives.
enum class Op : std::uint8_t { all_gather, reduce_scatter, all_reduce, reduce, broadcast, gather_bytes, barrier };
/// As records and messages write it, such as "all_gather".
std::string_view name_of(Op op);

/// What a collective is for, in error messages, records and traces.
struct Label {
  std::string_view what = "";  ///< must outlive the communicator: a literal
  int unit = -1;

  friend bool operator==(const Label&, const Label&) = default;
};

/// One collective, as this rank asked for it.
struct Record {
  std::int64_t sequence = 0;
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::int64_t bytes = 0;  ///< of all segments' `full`, in the dtype of the wire
  Label label;

  friend bool operator==(const Record&, const Record&) = default;
};

/// Run-time switches of one communicator.
struct Options {
  std::chrono::milliseconds deadline{20'000};          ///< longest wait for other ranks in one collective
  std::chrono::milliseconds device_deadline{600'000};  ///< longest wait for work of this rank's own device
  bool checks = false;                   ///< compare op, dtype, sizes and sequence number on every rank first
  bool record = false;                   ///< keep a Record for every collective
  std::int64_t message_bytes = 1 << 30;  ///< longest single message; MPI 3 counts in int
  bool windows = true;  ///< Mpi: ranks of one machine read each other's shared_memory in place; a split asks again
  /// Called on this rank before each collective. For tests of one's own stack: whatever it delays (random_delays) must
  /// change no result, and where it throws or ends the rank, the others must end by the deadline.
  std::function<void(int rank, const Record&)> before = {};
};

/// For Options::before: sleeps up to `longest`, as long as `seed`, the rank and the collective's number say.
std::function<void(int rank, const Record&)> random_delays(std::uint64_t seed, std::chrono::microseconds longest);

/// A record in words: "all_gather of weights, unit 3 (f32, 1024 elements, sequence 17)".
std::string describe(const Record& record);

/// Seconds in words: "0.100 s".
std::string in_seconds(std::chrono::duration<double> seconds);

/// What a backend says at the deadline,
std::string missed_deadline(std::chrono::duration<double> waited, std::string_view whom, const Options& options);
/// and where its own device takes too long. `besides`: who else may be the reason.
std::string missed_device_deadline(std::chrono::duration<double> waited, const Options& options,
                                   std::string_view besides = "");

/// Sums since the start.
struct Totals {
  double copy_seconds = 0;        ///< moving and summing; counted by the backend
  double waiting_seconds = 0;     ///< all other time inside a collective: another rank was not there yet
  std::int64_t copied_bytes = 0;  ///< read or received from other ranks, plus copies within this one
  std::int64_t shared_bytes = 0;  ///< of these, over Mpi, read in other ranks' windows
  std::int64_t collectives = 0;
};

/// State of the free functions in comm/collectives.hpp; one per communicator, never shared between ranks. Its address
/// stays the same when the communicator is moved.
class Monitor {
 public:
  Monitor();
  ~Monitor();

  int rank = 0;
  std::vector<int> world_ranks;    ///< by rank, of a communicator that was split from another; else empty
  std::vector<std::string> hosts;  ///< by rank, where ranks may be of several; else empty
  Options options;
  Totals totals;
  std::vector<Record> records;
  std::int64_t sequence = 0;
  Record current;  ///< the collective that is being started or waited for

  /// A rank of this communicator as the whole job counts it.
  int world_rank_of(int peer) const { return world_ranks.empty() ? peer : world_ranks[static_cast<std::size_t>(peer)]; }
  /// "rank 3 (has not come; host b)": a peer in messages. `state` may be empty.
  std::string name_of(int peer, std::string_view state = "") const;
};

}  // namespace fsdp::comm
