// SPDX-License-Identifier: Apache-2.0
/// @file
/// Windows: memory of a process that other processes on its machine can read.
///
/// A window is an anonymous file in memory (memfd_create). A peer opens it as /proc/<process>/fd/<file> and maps it
/// read-only when it first receives a place in that window. Unlike MPI_Win_allocate_shared this needs no collective
/// call and no space in /dev/shm, and leaves nothing behind when processes are killed: the kernel frees a window with
/// its last mapping.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/file.hpp>

#include "messages.hpp"

namespace fsdp::comm {

/// The position of bytes in the windows of a process, with the same meaning in every process.
struct Place {
  std::uint64_t window = 0;  ///< number of the window among all that the process ever made, from 1; 0: no window
  std::int64_t file = 0;     ///< file descriptor in that process
  std::int64_t bytes = 0;    ///< size of the window
  std::int64_t offset = 0;
};

/// Returns the reason why a window of process `pid`, which is rank `rank`, cannot be read: the process has ended, or
/// has freed the window (`freed`); otherwise `refusal`, the system's error.
std::string unreadable(int rank, std::int64_t pid, bool freed, std::string_view refusal);

/// The windows of this process, and the windows of other processes that it has mapped. All communicators that are split
/// from one another share one instance; processes are numbered by their rank in the first communicator. Only the thread
/// that calls MPI uses them.
class Windows {
 public:
  /// Finds out which processes can read each other's windows; two processes can only if `enabled` is true on both.
  /// Collective. Throws CollectiveError at the deadline.
  Windows(Messages& messages, bool enabled, Messages::Deadline deadline);
  Windows(const Windows&) = delete;
  Windows& operator=(const Windows&) = delete;
  ~Windows();

  /// Returns whether this process and another can read each other's windows.
  bool shares_with(int process) const { return peers_[static_cast<std::size_t>(process)].shares; }

  /// Allocates zeroed memory in a new window, aligned as by Device::allocate. The memory keeps `windows` alive.
  static std::shared_ptr<std::byte> allocate(const std::shared_ptr<Windows>& windows, std::int64_t bytes);
  /// Returns the place of [data, data + bytes); its window is 0 if the range is not in one.
  Place find(const std::byte* data, std::int64_t bytes) const;
  /// Maps the window of a place in another process, if it is not mapped yet, and returns the bytes, read-only. Throws
  /// CollectiveError if the process or its window is gone, or the system refuses.
  const std::byte* map(int process, const Place& place);
  /// Unmaps windows that their owners have freed.
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
    FileDescriptor file;
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
