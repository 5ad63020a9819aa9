// SPDX-License-Identifier: Apache-2.0
/// @file
/// Messages between processes: all that Tessera asks of MPI. The one source that sees mpi.h is messages.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace fsdp::comm {

/// What a message is for; its tag.
enum class MessageKind : std::uint8_t { arrival, places, data, piece, sum, reduced, done };

/// A message that was sent or received as a whole.
struct Message {
  std::uint64_t transfer = 0;
  MessageKind kind = MessageKind::arrival;
  bool sent = false;
  int peer = 0;
  std::int64_t piece = 0;
};

/// The point-to-point messages of one communicator. Between two ranks, messages of one transfer and kind keep their
/// order.
class Messages {
 public:
  /// All processes of the job; copies MPI_COMM_WORLD.
  Messages();
  Messages(Messages&&) noexcept;
  ~Messages();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Start one message of at most 2^31 - 1 bytes. The memory must stay until `poll` returns it.
  void send(const Message& message, const std::byte* data, std::int64_t bytes);
  void receive(const Message& message, std::byte* data, std::int64_t bytes);
  /// Messages that were completed since the last call. Valid until the next one.
  std::span<const Message> poll();

  /// Gives `mine` of every rank to all, in rank order; for the making of a communicator. Where ranks hang, the
  /// process ends at the deadline, as in all calls below.
  void exchange(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Byte r of `mine` becomes byte rank() of rank r's `all`.
  void exchange_each(std::span<const std::byte> mine, std::span<std::byte> all);
  /// MPI's own collectives, that ours are measured against.
  void library_all_gather(std::span<const float> local, std::span<float> full);
  void library_reduce_scatter(std::span<const float> full, std::span<float> local);

  Messages split(int color);
  /// Never returns memory to MPI: after a failure, when messages may still be under way.
  void leave_behind() noexcept;

 private:
  struct State;
  explicit Messages(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  int rank_ = 0;
  int size_ = 1;
};

/// MPI of this process, from the first collective to the last. `agree` says whether all processes call it with the same
/// bytes within two seconds.
class MpiProcess {
 public:
  /// `deadline`: of the calls that make and end communicators; more is left to MPI_Init.
  explicit MpiProcess(std::chrono::milliseconds deadline);
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;
  ~MpiProcess();

  int rank() const;
  /// Whether all processes call this with the same bytes within two seconds. Where they do not, only `abort` may
  /// follow.
  bool agree(std::span<const std::byte> bytes);
  [[noreturn]] static void abort(int status);
};

}  // namespace fsdp::comm
