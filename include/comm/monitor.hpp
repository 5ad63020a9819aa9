// SPDX-License-Identifier: Apache-2.0
/// @file
/// Per-rank bookkeeping of collectives: their kinds and counts, options, records, times, and the collective that is
/// currently waited for.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

/// Kinds of collectives.
enum class Op : std::uint8_t {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  reduce,
  broadcast,
  gather_bytes,
  barrier
};
/// All kinds of collectives, in the order of Op.
inline constexpr std::array all_ops = {Op::all_gather, Op::reduce_scatter, Op::all_reduce,   Op::all_to_all,
                                       Op::reduce,     Op::broadcast,      Op::gather_bytes, Op::barrier};
/// Returns the name in records and messages, such as "all_gather".
std::string_view name_of(Op op);

/// Collectives of one kind. The counts are the same on all ranks of a communicator, except the bytes of an all_to_all
/// whose ranks receive unequal amounts: each rank counts only its own.
struct Calls {
  std::int64_t calls = 0;
  std::int64_t bytes = 0;  ///< total bytes of whole buffers, with the pieces of all ranks: the sum of Record::bytes

  /// Add and subtract both numbers.
  /// @{
  constexpr Calls& operator+=(const Calls& other) {
    calls += other.calls;
    bytes += other.bytes;
    return *this;
  }
  constexpr Calls& operator-=(const Calls& other) { return *this += {-other.calls, -other.bytes}; }
  /// @}
  friend constexpr bool operator==(const Calls&, const Calls&) = default;
};

/// Collectives of one communicator, by kind.
struct Traffic {
  std::array<Calls, all_ops.size()> by_op = {};

  /// Returns the counts of one kind.
  /// @{
  constexpr Calls& operator[](Op op) { return by_op[static_cast<std::size_t>(op)]; }
  constexpr const Calls& operator[](Op op) const { return by_op[static_cast<std::size_t>(op)]; }
  /// @}
  /// Returns the number of calls of all kinds.
  constexpr std::int64_t calls() const {
    std::int64_t sum = 0;
    for (const Calls& each : by_op) sum += each.calls;
    return sum;
  }
  /// Adds kind by kind; `later - earlier` gives the calls made in between.
  constexpr Traffic& operator+=(const Traffic& other) {
    for (const Op op : all_ops) (*this)[op] += other[op];
    return *this;
  }
  friend constexpr Traffic operator-(Traffic later, const Traffic& earlier) {
    for (const Op op : all_ops) later[op] -= earlier[op];
    return later;
  }
  friend constexpr bool operator==(const Traffic&, const Traffic&) = default;
};

/// Collectives by axis of the mesh that a strategy works on. Counts are 0 for an axis that the mesh does not have or
/// that has only one rank.
struct MeshTraffic {
  Traffic world = {};     ///< all ranks
  Traffic across = {};    ///< ranks with the same position in each group of consecutive ranks
  Traffic shard = {};     ///< ranks of one group of consecutive ranks: K of them in hybrid:K and fsdp2:K
  Traffic sequence = {};  ///< the consecutive ranks that share a sequence

  /// Calls visitor(name, traffic) for each axis.
  template <class Self, class Visitor>
  static constexpr void visit(Self& self, Visitor&& visitor) {
    visitor("world", self.world);
    visitor("across", self.across);
    visitor("shard", self.shard);
    visitor("sequence", self.sequence);
  }
  friend constexpr MeshTraffic operator-(const MeshTraffic& later, const MeshTraffic& earlier) {
    return {later.world - earlier.world, later.across - earlier.across, later.shard - earlier.shard,
            later.sequence - earlier.sequence};
  }
  friend constexpr bool operator==(const MeshTraffic&, const MeshTraffic&) = default;
};

/// Thrown when a collective cannot finish: a deadline passed, ranks disagreed, or another rank failed.
class CollectiveError : public Error {
 public:
  using Error::Error;
  ~CollectiveError() override;
};

/// The purpose of a collective, for error messages, records and traces.
struct Label {
  std::string_view what = "";  ///< the purpose, such as "weights"; must outlive the communicator: a literal
  int unit = -1;

  friend bool operator==(const Label&, const Label&) = default;
};

/// One collective, as this rank called it.
struct Record {
  std::int64_t sequence = 0;
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::int64_t bytes = 0;  ///< total bytes of all segments' `full` or exchanges' `receive`, in the wire dtype
  Label label;

  friend bool operator==(const Record&, const Record&) = default;
};

/// Run-time switches of one communicator.
struct Options {
  /// Longest wait for other ranks in one collective. Includes the time for which they compute. milliseconds::max()
  /// disables it.
  std::chrono::milliseconds deadline{600'000};
  /// Longest time in which processes find and connect each other, in all. Nccl: a split and a communicator's first
  /// collective, which connect too, have what is left of it if that is longer than `deadline`. Mpi: of MPI_Init alone.
  std::chrono::milliseconds start_deadline{300'000};
  std::chrono::milliseconds device_deadline{600'000};  ///< longest wait for work of this rank's own device
  bool checks = false;  ///< whether to compare op, dtype, sizes and sequence number over ranks before each collective
  bool record = false;  ///< whether to store a Record of every collective
  std::int64_t message_bytes = 1 << 30;  ///< length of the longest single message; MPI 3 counts in int
  bool windows = true;  ///< Mpi: ranks of one machine read each other's shared_memory in place; splits check this again
  bool fast_reductions = false;  ///< Nccl::run: leave NVLS to NCCL, whose sums then may differ from run to run
  /// OpenMP threads of each copy and sum in host memory. 0: as many as the rank's thread has for its own parallel
  /// regions; 1 for ranks inside a host program (ThreadRanks, Mpi::adopt).
  int threads = 0;
  /// Called on this rank before each collective. For tests: a delay (random_delays) must not change any result, and if
  /// it throws or ends the rank, the other ranks must end by the deadline.
  std::function<void(int rank, const Record&)> before = {};
};

/// Returns the number of OpenMP threads for copies and sums of a rank inside a host program: Options::threads, or 1 if
/// it is not set. Throws InputError for a negative number.
int threads_in_host_program(const Options& options);

/// Returns an Options::before that sleeps for a pseudorandom time below `longest`, drawn from `seed`, the rank and the
/// collective's sequence number.
std::function<void(int rank, const Record&)> random_delays(std::uint64_t seed, std::chrono::microseconds longest);

/// Returns a record as text: "all_gather of weights, unit 3 (f32, 1024 elements, sequence 17)".
std::string describe(const Record& record);

/// Returns seconds as text: "0.100 s".
std::string in_seconds(std::chrono::duration<double> seconds);

/// Returns the error text for a missed Options::deadline.
std::string missed_deadline(std::chrono::duration<double> waited, std::string_view whom, const Options& options);
/// Returns the error text for a missed Options::device_deadline. `besides`: other possible causes, such as " or the
/// other ranks".
std::string missed_device_deadline(std::chrono::duration<double> waited, const Options& options,
                                   std::string_view besides = "");

/// Totals since the communicator was made.
struct Totals {
  double copy_seconds = 0;        ///< time spent moving and summing data; counted by the backend
  double waiting_seconds = 0;     ///< all other time inside collectives: mostly waiting for other ranks
  std::int64_t copied_bytes = 0;  ///< bytes read or received from other ranks, plus bytes copied within this one
  std::int64_t shared_bytes = 0;  ///< Mpi: the part of copied_bytes that was read in other ranks' windows
  Traffic traffic;                ///< collectives, counted when they start
};

/// The state of the free functions in tessera/comm/collectives.hpp. Each communicator has its own, which ranks never
/// share. Its address stays the same when the communicator is moved.
class Monitor {
 public:
  Monitor();
  ~Monitor();

  int rank = 0;
  std::vector<int> world_ranks;    ///< job-wide rank of each rank; may be empty if both are the same
  std::vector<std::string> hosts;  ///< host of each rank if ranks may run on several hosts; else empty
  Options options;
  Totals totals;
  std::vector<Record> records;
  std::int64_t sequence = 0;
  Record current;            ///< the collective that is being started or waited for
  std::string library;       ///< version and settings of the backend's library, for logs; empty if it has none
  std::string lost_promise;  ///< a sentence on why float sums may differ from run to run; empty if they do not

  /// Returns the job-wide rank of a rank of this communicator.
  int world_rank_of(int peer) const { return world_ranks.empty() ? peer : world_ranks[static_cast<std::size_t>(peer)]; }
  /// Takes the options, and the job-wide ranks and hosts of `ranks`, of the communicator that this one is split from.
  void follow(const Monitor& parent, std::span<const int> ranks);
  /// Returns a peer's name for messages: "rank 3 (has not come; host b)". `state`, here "has not come", may be empty.
  std::string name_of(int peer, std::string_view state = "") const;
};

}  // namespace fsdp::comm
