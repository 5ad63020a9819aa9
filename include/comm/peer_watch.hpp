// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sockets of a rendezvous, kept open while the job runs: every rank hears when another fails.
///
/// Rank 0 is connected to all others and forwards failures. A thread of each process sleeps in poll(2): rank 0 forwards
/// while its host reads a disk, and a host that is blocked in a call of its device, behind a lost peer, hears nothing.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace fsdp::comm {

/// A rank's end of these sockets, and the thread that reads them. Keep it while the job runs.
class PeerWatch {
  using Text = std::array<char, 512>;  ///< a message: "rank 2 failed: REASON"; empty if its sender ends well

 public:
  /// A connected TCP socket and the rank of its other end.
  struct Peer {
    int rank = 0;
    int socket = -1;
    std::size_t received = 0;  ///< bytes of the message that is arriving
    Text text = {};
    bool open = true;  ///< whether it has neither sent its message nor ended
  };

  /// Takes over the sockets: rank 0's to all other ranks, or another rank's to rank 0.
  PeerWatch(int rank, std::vector<Peer> peers);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  ~PeerWatch();  ///< closes the sockets; without a preceding `leave` the others hear a failure

  bool has_failure() const { return failed_; }  ///< whether another rank has failed
  std::string failure() const;                  ///< "rank 2 failed: REASON" of the first failure; empty without one
  /// Sets what the watch's thread calls two seconds after a failure, in case this rank's host is blocked.
  void when_blocked(std::function<void()> give_up);
  /// Sends the others this rank's failure, unless another rank failed first.
  void report(std::string_view reason) noexcept;
  /// Tells the others that this rank ends well. Rank 0 first waits for theirs, up to `limit`, to forward failures.
  void leave(std::chrono::milliseconds limit) noexcept;

 private:
  void listen();
  void read(Peer& peer);
  void hear(const Text& failure);
  void send(const Text& text) noexcept;

  const int rank_;
  std::vector<Peer> peers_;
  std::atomic<int> open_;  ///< number of peers that may still send
  std::atomic<bool> failed_ = false;
  mutable std::mutex mutex_;  ///< guards the members below
  std::condition_variable stops_;
  bool stopped_ = false;  ///< this rank has failed or is ending, and hears no more
  std::string failure_;
  std::function<void()> give_up_;
  std::thread thread_;
};

}  // namespace fsdp::comm
