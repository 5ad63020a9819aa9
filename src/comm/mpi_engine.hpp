// SPDX-License-Identifier: Apache-2.0
/// @file
/// The transfers in flight of one MPI rank.
///
/// A transfer first sends each peer an arrival message with its outline. So waiting can be told apart from moving data,
/// a missed deadline can name the missing ranks, and ranks that disagree get an error. The arrival also says how the
/// rank's part reaches the peer:
///  - in place, if it lies in windows that the peer can map: the arrival carries its places, and the peer copies or
///  sums from there and answers `done`, after which the memory may change;
///  - otherwise in messages. They are received once both outlines were compared: Open MPI 4.1 writes a message that is
///  longer than its receive beyond the end of the memory.
/// Sums run one at a time, because they share scratch. In an all_reduce a rank's sums travel in the same way as its
/// contribution: peers read them after its message `reduced`.
///
/// A rank that fails tells all others by a message, which they look for while nothing else moves, and before a transfer
/// starts.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/mpi_rank.hpp>

#include "messages.hpp"
#include "mpi_sum.hpp"
#include "mpi_windows.hpp"

namespace fsdp::comm {

/// What a launcher wants to know of its communicators.
struct MpiWatch {
  std::atomic<const Monitor*> waiting_in = nullptr;  ///< of the collective that the thread waits in; for a handler
  std::optional<Record> told_in = {};  ///< the collective that failed because another rank told of a failure
};

/// Notes in a MpiWatch, while it lives, which collective this thread waits in.
class WaitingIn {
 public:
  WaitingIn(MpiWatch* watch, const Monitor& monitor)
      : watch_(watch), outer_(watch == nullptr ? nullptr : watch->waiting_in.exchange(&monitor)) {}
  WaitingIn(const WaitingIn&) = delete;
  WaitingIn& operator=(const WaitingIn&) = delete;
  ~WaitingIn() {
    if (watch_ != nullptr) watch_->waiting_in.store(outer_);
  }

 private:
  MpiWatch* watch_;
  const Monitor* outer_;
};

class MpiRank::Engine {
 public:
  /// Makes the engine of all processes, and their windows.
  Engine(Messages messages, const Options& options, MpiWatch* watch);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() = default;
  /// Before the destructor: fails, if an exception is what ends this communicator.
  void end() noexcept;

  Messages& messages() { return messages_; }
  const Messages& messages() const { return messages_; }
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes);

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  /// Makes the engine of the ranks with this `color`, which shares the windows. Collective.
  std::unique_ptr<Engine> split(int color);
  /// Marks the engine failed, tells the other ranks why, and leaves its messages behind.
  void give_up(std::string_view why) noexcept { give_up(monitor.world_rank_of(messages_.rank()), why); }
  /// Whether messages were left in flight when it failed: its memory must then never be freed.
  bool leaves_messages() const { return leaves_messages_; }

  Monitor monitor;

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::uint64_t depth = 32;
  static constexpr int nobody = -1;

  /// Places that fit into the arrival; only transfers with more segments need a separate message.
  static constexpr std::size_t carried = 4;

  /// The first message of a transfer between two ranks.
  struct Arrival {
    Outline outline;
    std::int64_t in_windows = 0;          ///< whether peers that share windows read this rank's part in place
    std::uint64_t counts_hash = 0;        ///< all_to_all: of the numbers of elements for the peer, by exchange
    std::array<Place, carried> places{};  ///< by segment; with more segments, all places follow in a message
  };
  /// A peer's state in one transfer.
  struct Peer {
    Arrival own_arrival;                    ///< all_to_all: this rank's, addressed to the peer
    std::vector<Place> own_places;          ///< all_to_all: of the pieces for the peer, by exchange
    Arrival arrival;                        ///< the peer's
    std::vector<Place> places;              ///< of the peer's part, by segment
    std::vector<const std::byte*> sources;  ///< the same, mapped; empty if its part is sent
    std::int64_t expected = 0;              ///< messages to receive from it
    std::int64_t unsent = 0;                ///< messages to it that MPI has not taken yet
    bool arrived = false;
    bool reduced = false;
  };
  struct InFlight {
    Ticket ticket = 0;
    Transfer transfer;
    Arrival arrival;            ///< this rank's; in an all_to_all each peer has its own
    std::vector<Place> places;  ///< of this rank's part, by segment
    std::vector<Peer> peers;
    std::vector<SumPeer> sum_peers;
    std::int64_t outstanding = 0;  ///< messages in flight, except those of a sum
    int not_arrived = 0;
    int not_settled = 0;  ///< peers whose part may come in place or in messages: not known yet
    bool sends = false;   ///< whether some data travels in messages
    bool sum_to_come = false;
  };

  /// Some ranks of an engine, as those of another.
  struct Part {
    std::vector<int> ranks;       ///< in the parent, by rank
    std::vector<int> process_of;  ///< see process_of_
    int context = 0;
  };
  /// A rank that has told of its failure.
  struct Told {
    FailureNotice notice;
    Clock::time_point at;
  };

  Engine(Engine& parent, const Part& part);
  void find_processes();
  void gather(std::span<const std::byte> mine, std::span<std::byte> all);
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

  // In mpi_failing.cpp: how a rank fails, and hears of others.
  void require_alive() const;
  void give_up(int origin, std::string_view why) noexcept;
  [[noreturn]] void fail(std::string_view why);
  [[noreturn]] void fail_as(const FailureNotice& notice);
  void hear(Clock::time_point now);
  void throw_if_a_peer_failed(const InFlight& transfer, Clock::time_point now);
  bool needs(const InFlight& transfer, int peer) const;

  // In mpi_reading.cpp: data in windows.
  void find_places(InFlight& transfer) const;
  void address_arrival(InFlight& transfer, int peer) const;
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
  int process_;                  ///< this process's number in windows_
  std::vector<int> process_of_;  ///< by rank; nobody if windows are off on either side
  PieceSum sum_;
  std::array<InFlight, depth> in_flight_;
  std::deque<Ticket> sums_;  ///< queued sums, after the current one
  Ticket next_ = 0;
  double read_seconds_ = 0;  ///< spent reading windows
  bool failed_ = false;
  std::string failure_;  ///< why
  bool leaves_messages_ = false;
  std::vector<Told> told_;
  Clock::time_point heard_{};  ///< when it last looked for notices
  MpiWatch* watch_;            ///< a launcher's, or null
  int exceptions_;             ///< in flight at construction
};

}  // namespace fsdp::comm
