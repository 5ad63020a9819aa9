// SPDX-License-Identifier: Apache-2.0
/// @file
/// The transfers of one MPI rank that are under way.
///
/// Every transfer first tells each peer that this rank has come (an empty message): waiting is told apart from moving,
/// and a missed deadline can name who is missing. Gathers are posted when they start; sums take turns, because they
/// share scratch.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <comm/mpi.hpp>

#include "messages.hpp"
#include "mpi_sum.hpp"

namespace fsdp::comm {

class MpiRank::Engine {
 public:
  Engine(Messages messages, const Options& options);
  ~Engine();

  Messages& messages() { return messages_; }
  const Messages& messages() const { return messages_; }

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  /// Messages may still be under way: MPI must not be called again for them.
  void give_up() noexcept;

  Monitor monitor;

 private:
  static constexpr std::uint64_t depth = 32;
  static constexpr int nobody = -1;

  struct InFlight {
    Ticket ticket = 0;
    Transfer transfer;
    std::int64_t outstanding = 0;             ///< messages, but those of a sum
    std::vector<std::int64_t> expected_from;  ///< messages to receive, by peer
    std::vector<char> arrived;                ///< by peer
    int not_arrived = 0;
    bool sum_to_come = false;
  };

  InFlight& slot(Ticket ticket) { return in_flight_[ticket % depth]; }
  bool complete(Ticket ticket);
  bool progress();
  bool advance_sums();
  void on(const Message& message);
  void send(InFlight& to, MessageKind kind, int peer, const std::byte* data, std::int64_t bytes);
  void receive(InFlight& to, MessageKind kind, int peer, std::byte* data, std::int64_t bytes);
  void post_gather(InFlight& gather, MessageKind kind);
  void post_broadcast(InFlight& broadcast);
  std::string missing(const InFlight& transfer) const;
  void require_alive() const;

  Messages messages_;
  PieceSum sum_;
  std::array<InFlight, depth> in_flight_;
  std::deque<Ticket> sums_;  ///< to come, after the one under way
  Ticket next_ = 0;
  bool failed_ = false;
  int exceptions_;  ///< in flight when this was made
};

}  // namespace fsdp::comm
