// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows: memory of one process that the other processes of its machine can read.
///
/// A window is an anonymous file in memory (memfd_create), which a peer opens as /proc/<process>/fd/<file> and maps to
/// read when it is first sent a place in it. Unlike MPI_Win_allocate_shared this asks for no collective call, needs no
/// room in /dev/shm, and leaves nothing behind when processes are killed: the kernel frees a window with its last
/// mapping.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "messages.hpp"

namespace fsdp::comm {

/// Where bytes lie in the windows of a process; means the same to every process.
struct Place {
  std::uint64_t window = 0;  ///< number among all that the process ever made, from 1
  std::int64_t file = 0;     ///< its descriptor there
  std::int64_t bytes = 0;    ///< of the window
  std::int64_t offset = 0;
};

/// The windows of this process, and those of others that it has mapped. Shared by all communicators that were split
/// from one; processes are named by their rank in the first of them. Used by the thread that calls MPI.
class Windows {
 public:
  /// Collective. Finds out which processes can read each other; none can where `enabled` is false on one of the two.
  Windows(Messages& messages, bool enabled);
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  /// Whether this process and another can read each other's windows.
  bool shares_with(int process) const { return peers_[static_cast<std::size_t>(process)].shares; }

  /// Memory in a window of its own, zeroed, as Device::allocate gives it. It keeps `windows` alive.
  static std::shared_ptr<std::byte> allocate(const std::shared_ptr<Windows>& windows, std::int64_t bytes);
  /// Where [data, data + bytes) lies; the window 0 where it is not in one.
  Place find(const std::byte* data, std::int64_t bytes) const;
  /// The bytes at a place of another process, to be read only. Throws CollectiveError where the system refuses.
  const std::byte* map(int process, const Place& place);
  /// Unmaps what other processes have given back.
  void forget_released();

 private:
  using Nonce = std::array<std::uint64_t, 2>;

  struct Peer {
    Nonce nonce{};
    std::int64_t pid = 0;
    bool shares = false;
  };
  struct Own {
    std::uint64_t number = 0;
    int file = -1;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };
  struct Mapped {
    int process = 0;
    std::uint64_t number = 0;
    const std::byte* data = nullptr;
    std::int64_t bytes = 0;
  };

  void release(const std::byte* data) noexcept;
  std::string path_of(int process, std::int64_t file) const;

  int rank_;
  Nonce nonce_{};
  std::uint64_t made_ = 0;
  std::vector<Peer> peers_;
  std::vector<Own> own_;
  std::vector<Mapped> mapped_;
};

}  // namespace fsdp::comm
