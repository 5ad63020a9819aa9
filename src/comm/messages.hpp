// SPDX-License-Identifier: Apache-2.0
/// @file
/// Point-to-point messages between processes. Communicators use nothing else of MPI, except one duplicate of the
/// caller's MPI_Comm.
///
/// All communicators that are split from one another share that duplicate. Each has a context, a number in the tags of
/// its messages, so that a split does not need a collective call of MPI, which would have no deadline.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fsdp::comm {

/// A message's purpose, which its tag encodes.
enum class MessageKind : std::uint8_t { arrival, places, data, piece, sum, reduced, done, setup, failure };

/// One message, sent or received.
struct Message {
  std::uint64_t transfer = 0;
  MessageKind kind = MessageKind::arrival;
  bool sent = false;
  int peer = 0;
  std::int64_t piece = 0;
};

/// How long a failed rank waits for other ranks that may have begun to receive its messages or to send theirs.
inline constexpr std::chrono::milliseconds longest_end{10'000};

/// The notice that a failed rank sends to the others.
struct FailureNotice {
  int sender = 0;         ///< the sender's rank in this communicator
  int origin = 0;         ///< world rank of the rank that failed first: the sender, or a rank that notified it
  std::string text = "";  ///< reason of the failure
};

/// The point-to-point messages of one communicator. Between two ranks, messages of one transfer and kind arrive in
/// order. All ranks start transfers in the same order, and no rank is 64 or more transfers ahead of another.
class Messages {
 public:
  using Deadline = std::chrono::milliseconds;

  /// Makes the communicator of all processes of the MPI_Comm at `communicator`, which is duplicated. Collective. Throws
  /// CollectiveError unless all processes call it within `deadline`; a collective call of MPI then remains unfinished
  /// on the caller's MPI_Comm.
  Messages(const void* communicator, Deadline deadline);
  Messages(Messages&&) noexcept;
  ~Messages();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Starts one message of at most 2^31 - 1 bytes. The memory must stay valid until `poll` returns the message.
  void start(const Message& message, std::byte* data, std::int64_t bytes);
  /// Returns the messages that completed since the last call. The span is valid until the next call.
  std::span<const Message> poll();

  /// Gathers every rank's `mine` into `all`, in rank order; if `mine` is as long as `all`, only its part r is sent to
  /// rank r. Used while the first communicator is made, when no other message is in flight. Throws CollectiveError at
  /// the deadline.
  void exchange(std::span<const std::byte> mine, std::span<std::byte> all, Deadline deadline);
  /// Call MPI's own collectives, as a reference for benchmarks; on the communicator of all processes only.
  void library_all_gather(std::span<const float> local, std::span<float> full);
  void library_reduce_scatter(std::span<const float> full, std::span<float> local);

  /// Returns a number such that this process has not used it or any larger number as a context.
  int free_context() const;
  /// Makes a communicator of a subset of the ranks, which includes this rank. `ranks`: for each rank of the new
  /// communicator, its rank in this one. `context`: the largest free_context of these ranks. Sends nothing.
  Messages part(std::span<const int> ranks, int context) const;

  /// Notifies all other ranks that this one has failed. Does not wait for them.
  void announce_failure(int origin, std::string_view text) noexcept;
  /// Returns the next notice of a failed rank, if one has arrived.
  std::optional<FailureNotice> hear_failure();
  /// Call it after announce_failure. Cancels all receives, and waits until no message in flight can read or write the
  /// caller's memory. This needs the peers, which fail too and then report that they receive no more. Waits at most
  /// `limit`, since a peer that computes or is lost does not answer. Returns whether messages are still in flight. MPI
  /// never completes these; small messages that the library has sent must stay in memory.
  bool leave_behind(Deadline limit) noexcept;

 private:
  struct Duplicate;
  struct State;
  struct Notice;
  explicit Messages(std::unique_ptr<State> state);
  void await_exchange(Deadline deadline);
  void tell(Notice& notice) noexcept;

  std::unique_ptr<State> state_;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace fsdp::comm
