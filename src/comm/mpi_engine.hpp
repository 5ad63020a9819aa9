// SPDX-License-Identifier: Apache-2.0
/// @file
/// The transfers in flight of one MPI rank.
///
/// A transfer first sends each peer an arrival message with its outline. This distinguishes waiting from moving data,
/// identifies the missing ranks after a missed deadline, and detects ranks that disagree. The arrival also specifies
/// how the rank's part reaches the peer:
///  - in place, if the part lies in windows that the peer can map: the arrival contains its places, and the peer copies
///  or sums from there and answers `done`, after which the memory may change;
///  - otherwise in messages, which are received only after both outlines were compared: Open MPI 4.1 writes beyond the
///  end of the buffer if a message is longer than its receive.
/// Sums run one at a time, because they share scratch. In an all_reduce, a rank's sums reach the peers in the same way
/// as its contribution: in place, peers read them after its message `reduced`.
///
/// A rank that fails notifies all others by a message. They check for such messages while nothing else moves, and
/// before a transfer starts.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/mpi_rank.hpp>
#include <tessera/comm/poll.hpp>

#include "messages.hpp"
#include "mpi_sum.hpp"
#include "mpi_windows.hpp"

namespace fsdp::comm {

/// The state of communicators that a launcher observes.
struct MpiWatch {
  std::atomic<const Monitor*> waiting_in = nullptr;  ///< for the awaited collective; read by a signal handler
  std::optional<Record> told_in = {};  ///< the collective that failed because another rank reported a failure
};

/// Records in a MpiWatch, while it is alive, which collective this thread waits in.
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
  /// Makes the engine of all processes, with their windows.
  Engine(Messages messages, const Options& options, MpiWatch* watch);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine() = default;
  /// Called before the destructor: marks the engine failed if an exception ends this communicator.
  void end() noexcept;

  Messages& messages() { return messages_; }
  const Messages& messages() const { return messages_; }
  int size() const { return messages_.size(); }
  std::shared_ptr<std::byte> shared_memory(std::int64_t bytes);

  Transfer& prepare();
  Ticket start();
  bool test(Ticket ticket);
  void wait(Ticket ticket);
  /// Makes the engine of all ranks with this `color`; it shares the windows. Collective.
  std::unique_ptr<Engine> split(int color);
  /// Marks the engine failed, notifies the other ranks of the reason, and abandons its messages.
  void give_up(std::string_view why) noexcept { give_up(monitor.world_rank_of(messages_.rank()), why); }
  /// Returns whether messages were in flight when it was given up: its memory must then never be freed.
  bool leaves_messages() const { return leaves_messages_; }

  Monitor monitor;

 private:
  static constexpr std::uint64_t depth = 32;
  static constexpr int nobody = -1;

  /// Number of places that fit into the arrival; only transfers with more segments need a separate message.
  static constexpr std::size_t carried = 4;

  /// The first message of a transfer between two ranks.
  struct Arrival {
    Outline outline;
    std::int64_t in_windows = 0;    ///< whether peers that share windows read this rank's part in place
    std::uint64_t counts_hash = 0;  ///< all_to_all: hash of the numbers of elements for the peer, by exchange
    std::array<Place, carried>
        places{};  ///< places by segment; if there are more segments, all places follow in a message
  };
  /// A peer's state in one transfer.
  struct Peer {
    Arrival own_arrival;                    ///< all_to_all: this rank's arrival, addressed to the peer
    std::vector<Place> own_places;          ///< all_to_all: places of the pieces for the peer, by exchange
    Arrival arrival;                        ///< the arrival that the peer sent
    std::vector<Place> places;              ///< places of the peer's part, by segment
    std::vector<const std::byte*> sources;  ///< `places`, mapped; empty if the peer sends its part
    std::int64_t expected = 0;              ///< number of messages to receive from the peer
    std::int64_t unsent = 0;                ///< number of messages to the peer that MPI has not sent yet
    bool arrived = false;
    bool reduced = false;
  };
  struct InFlight {
    Ticket ticket = 0;
    Transfer transfer;
    Arrival arrival;            ///< this rank's arrival; in an all_to_all each peer has its own
    std::vector<Place> places;  ///< places of this rank's part, by segment
    std::vector<Peer> peers;
    std::vector<SumPeer> sum_peers;
    std::int64_t outstanding = 0;  ///< number of messages in flight, except those of a sum
    int not_arrived = 0;
    int not_settled = 0;  ///< number of peers not yet known to use messages or in-place reads
    bool sends = false;   ///< whether some data is sent in messages
    bool sum_to_come = false;
  };

  /// A received notice of a failure.
  struct ReceivedNotice {
    FailureNotice notice;
    Clock::time_point at;
  };

  /// Makes the engine of some ranks of `parent`, by rank in the new engine. `process_of`: see process_of_.
  Engine(Engine& parent, std::span<const int> ranks, std::vector<int> process_of, int context);
  InFlight& slot(Ticket ticket) { return in_flight_[ticket % depth]; }
  bool complete(Ticket ticket);
  bool progress();
  bool advance_sums();
  void on(const Message& message);
  void post(InFlight& to, Message message, std::byte* data, std::int64_t bytes);
  void send(InFlight& to, MessageKind kind, int peer, std::span<const std::byte> data = {}) {
    post(to, {.kind = kind, .sent = true, .peer = peer}, const_cast<std::byte*>(data.data()), std::ssize(data));
  }
  void receive(InFlight& to, MessageKind kind, int peer, std::span<std::byte> data = {}) {
    post(to, {.kind = kind, .peer = peer}, data.data(), std::ssize(data));
  }
  void announce(InFlight& transfer, int peer);
  void post_part(InFlight& to, const Message& message);
  void count_copying(const InFlight& transfer, Clock::time_point begin, double read_before);
  std::string missing(const InFlight& transfer) const;

  // In mpi_failing.cpp: how a rank fails, and how it notices failures of others.
  void require_alive() const;
  void give_up(int origin, std::string_view why) noexcept;
  [[noreturn]] void fail(std::string_view why);
  [[noreturn]] void fail_as(const FailureNotice& notice);
  void receive_notices(Clock::time_point now);
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
  int process_;                  ///< number of this process in windows_
  std::vector<int> process_of_;  ///< process number of each rank; `nobody` if windows are off on either side
  PieceSum sum_;
  std::array<InFlight, depth> in_flight_;
  std::deque<Ticket> sums_;  ///< queued sums, after the current one
  Ticket next_ = 0;
  double read_seconds_ = 0;  ///< time spent reading windows
  bool failed_ = false;
  std::string failure_;  ///< reason of the failure
  bool leaves_messages_ = false;
  std::vector<ReceivedNotice> told_;
  Clock::time_point heard_{};  ///< time of the last check for notices
  MpiWatch* watch_;            ///< the launcher's MpiWatch, or null
  int exceptions_;             ///< number of exceptions in flight at construction
};

}  // namespace fsdp::comm
