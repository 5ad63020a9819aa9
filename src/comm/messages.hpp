// SPDX-License-Identifier: Apache-2.0
/// @file
/// Point-to-point messages between processes: everything that Tessera uses of MPI. Only messages.cpp includes mpi.h.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace fsdp::comm {

/// A message's purpose, which its tag encodes.
enum class MessageKind : std::uint8_t { arrival, places, data, piece, sum, reduced, done };

/// One message, sent or received.
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
  /// Makes the communicator of all processes of the job, a duplicate of MPI_COMM_WORLD.
  Messages();
  Messages(Messages&&) noexcept;
  ~Messages();

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Starts one message of at most 2^31 - 1 bytes. The memory must stay valid until `poll` returns the message.
  void send(const Message& message, const std::byte* data, std::int64_t bytes);
  void receive(const Message& message, std::byte* data, std::int64_t bytes);
  /// Returns the messages that completed since the last call. The span is valid until the next call.
  std::span<const Message> poll();

  /// Gathers every rank's `mine` into `all`, in rank order; used while making a communicator. If ranks hang, the
  /// process ends at the deadline, as in exchange_each and split.
  void exchange(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Sends byte r of `mine` to rank r, which receives it as byte rank() of its `all`.
  void exchange_each(std::span<const std::byte> mine, std::span<std::byte> all);
  /// Call MPI's own collectives, as a reference for benchmarks.
  void library_all_gather(std::span<const float> local, std::span<float> full);
  void library_reduce_scatter(std::span<const float> full, std::span<float> local);

  Messages split(int color);
  /// Abandons the MPI communicator instead of freeing it. For use after a failure, when messages may still be in
  /// flight.
  void leave_behind() noexcept;

 private:
  struct State;
  explicit Messages(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
  int rank_ = 0;
  int size_ = 1;
};

/// Initialises MPI in its constructor and finalises it in its destructor.
class MpiProcess {
 public:
  /// `deadline` limits the calls that make and end communicators; MPI_Init gets at least 60 s.
  explicit MpiProcess(std::chrono::milliseconds deadline);
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;
  ~MpiProcess();

  int rank() const;
  /// Returns whether all processes call this with the same bytes within two seconds. If not, only `abort` may follow.
  bool agree(std::span<const std::byte> bytes);
  [[noreturn]] static void abort(int status);
};

}  // namespace fsdp::comm
