// SPDX-License-Identifier: Apache-2.0
/// @file
/// The transfers of one MPI rank that are under way.
///
/// Every transfer first tells each peer that this rank has come, and for what: waiting is told apart from moving, a
/// missed deadline can name who is missing, and ranks that disagree are told so. Then each rank's part reaches a peer
/// in one of two ways, which the arrival tells:
///  - it lies in windows that the peer can map: its places come too, the peer copies or sums from there and answers
///    `done`, after which the memory may change;
///  - it is sent. From processes that share no windows, receives are posted before they come.
/// Sums take turns, because they share scratch. In an all_reduce a rank's sums take the same way as its contribution:
/// they are read once it has said `reduced`.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include <comm/mpi.hpp>

#include "messages.hpp"
#include "mpi_sum.hpp"
#include "mpi_windows.hpp"

namespace fsdp::comm {

class MpiRank::Engine {
 public:
  /// All processes, and their windows.
  Engine(Messages messages, const Options& options);
  /// Those of `color` among a parent's.
  Engine(Engine& parent, int color);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  Messages& messages() { return messages_; }
  const Messages& messages() const { return messages_; }
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes);

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  /// Messages may still be under way: MPI must not be called again for them.
  void give_up() noexcept;

  Monitor monitor;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t depth = 32;
  static constexpr int nobody = -1;

  /// Places that an arrival has room for: a message less where there are no more.
  static constexpr std::size_t carried = 4;

  /// The first message of a transfer between two ranks.
  struct Arrival {
    Outline outline;
    std::int64_t in_windows = 0;          ///< whether those that share windows read this rank's part there
    std::array<Place, carried> places{};  ///< by segment; of more segments all follow
  };
  /// What is known of a peer in one transfer.
  struct Peer {
    Arrival arrival;
    std::vector<Place> places;              ///< of its part, by segment
    std::vector<const std::byte*> sources;  ///< the same, mapped; empty: its part is sent
    std::int64_t expected = 0;              ///< messages to receive from it
    bool arrived = false;
    bool reduced = false;
  };
  struct InFlight {
    Ticket ticket = 0;
    Transfer transfer;
    Arrival arrival;            ///< this rank's
    std::vector<Place> places;  ///< of this rank's part, by segment
    std::vector<Peer> peers;
    std::vector<SumPeer> sum_peers;
    std::int64_t outstanding = 0;  ///< messages, but those of a sum
    int not_arrived = 0;
    int not_settled = 0;  ///< peers whose way is not known yet
    bool sends = false;   ///< some data travels in messages
    bool sum_to_come = false;
  };

  void find_processes();
  InFlight& slot(Ticket ticket) { return in_flight_[ticket % depth]; }
  bool complete(Ticket ticket);
  bool progress();
  bool advance_sums();
  void on(const Message& message);
  std::int64_t longest(MessageKind kind, std::int64_t bytes) const;
  void send(InFlight& to, MessageKind kind, int peer, const std::byte* data, std::int64_t bytes);
  void receive(InFlight& to, MessageKind kind, int peer, std::byte* data, std::int64_t bytes);
  void announce(InFlight& transfer, int peer);
  void send_part(InFlight& to, MessageKind kind, int peer);
  void receive_part(InFlight& to, MessageKind kind, int peer);
  void count_copying(const InFlight& transfer, Clock::time_point begin, double read_before);
  std::string missing(const InFlight& transfer) const;
  void require_alive() const;

  // In mpi_reading.cpp: what lies in windows.
  void find_places(InFlight& transfer) const;
  bool shares_with(int peer) const;
  bool is_read_by(const InFlight& transfer, int peer) const {
    return transfer.arrival.in_windows != 0 && shares_with(peer);
  }
  void on_arrival(InFlight& transfer, int peer);
  void on_places(InFlight& transfer, int peer);
  void begin_sum(InFlight& transfer);
  void after_sum(InFlight& transfer);
  void read_part(InFlight& transfer, int peer);

  Messages messages_;
  std::shared_ptr<Windows> windows_;
  int process_;                  ///< this one, in windows_
  std::vector<int> process_of_;  ///< by rank; nobody where windows are switched off, here or there
  PieceSum sum_;
  std::array<InFlight, depth> in_flight_;
  std::deque<Ticket> sums_;  ///< to come, after the one under way
  Ticket next_ = 0;
  double read_seconds_ = 0;  ///< spent reading windows
  bool failed_ = false;
  int exceptions_;  ///< in flight when this was made
};

}  // namespace fsdp::comm
