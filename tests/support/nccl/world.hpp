// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared state of the ranks of a communicator of the fake NCCL: memory of the
/// process for threads, a file for processes.
///
/// Each rank publishes the data that a group of calls sends, and does its own
/// part once all ranks have published. The buffer of a turn is reused two turns
/// later: a rank gets there after all have published the turn in between, so
/// after all have read this one. Nothing is locked, so that a killed rank
/// blocks others only by what it does not publish.
#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "calls.hpp"

namespace fsdp::testing {

class NcclWorld {
 public:
  static constexpr int most_ranks = 8;

  /// Opens the world of that name, in a file in `folder`, or in this process if
  /// `folder` is empty. Creates it if absent.
  static std::shared_ptr<NcclWorld> open(const std::string& folder, const std::string& name, int size) {
    require(size <= most_ranks, "the fake NCCL takes ", most_ranks, " ranks, not ", size);
    static std::mutex mutex;
    static auto& known = *new std::map<std::string, std::weak_ptr<NcclWorld>>;
    const std::lock_guard lock(mutex);
    std::shared_ptr<NcclWorld> world = known[name].lock();
    if (world == nullptr) {
      // No constructor runs: it would write zeros, and a peer may have written
      // since.
      world = std::shared_ptr<NcclWorld>(std::launder(static_cast<NcclWorld*>(map(folder, name))),
                                         [](NcclWorld* left) { ::munmap(left, all_bytes); });
      known[name] = world;
    }
    require(world->size_ == 0 || world->size_ == size, "the fake NCCL's ranks join ", size, " and ", world->size_,
            " ranks");
    if (world->size_ == 0) world->size_ = size;  // others may read it
    return world;
  }
  int size() const { return size_; }

  // ---- Ranks join, arrive and abort
  int joined() const { return joined_; }
  /// `host`: a hash of the identity of the rank's host; 0 is none.
  void join(int rank, std::uint64_t host) {
    ranks_[rank].host = host;
    ++joined_;
    changed();
  }
  bool on_one_host() const {
    return all_ranks([&](const Rank& rank) { return rank.host == ranks_[0].host; });
  }
  bool aborted() const { return aborted_; }  ///< whether any rank has aborted
  void abort() {
    aborted_ = true;
    changed();
  }
  /// Whether the hosts of all ranks have ended so many groups.
  bool arrived(std::int64_t groups) const {
    return all_ranks([&](const Rank& rank) { return rank.arrived >= groups; });
  }
  void arrive(int rank) {
    ++ranks_[rank].arrived;
    changed();
  }

  // ---- Groups
  /// Copies the data that this rank's calls send. Returns an error if it is too
  /// large; otherwise empty.
  [[nodiscard]] std::string publish(int rank, std::int64_t turn, const NcclCalls& calls) {
    std::byte* to = message(rank, turn);
    const std::byte* const end = to + message_bytes;
    const auto put = [&](const void* from, std::int64_t bytes) {
      if (bytes > end - to) return false;
      if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
      to += bytes;
      return true;
    };
    const std::int64_t count = std::ssize(calls);
    bool fits = put(&count, sizeof count) && put(calls.data(), count * std::int64_t{sizeof(comm::nccl::Call)});
    for (const comm::nccl::Call& call : calls) fits = fits && put(call.from, bytes_sent(call, rank, size_));
    if (!fits) return fsdp::message("a group sends more than the fake NCCL's ", message_bytes, " bytes");
    ranks_[rank].published = turn + 1;
    changed();
    return "";
  }
  /// Whether all ranks have published this turn.
  bool published(std::int64_t turn) const {
    return all_ranks([&](const Rank& rank) { return rank.published > turn; });
  }
  /// The calls of all ranks, whose sources are the published copies.
  NcclCallsByRank group(std::int64_t turn) const {
    NcclCallsByRank all;
    for (int rank = 0; rank < size_; ++rank) {
      const std::byte* from = message(rank, turn);
      std::int64_t count = 0;
      std::memcpy(&count, from, sizeof count);
      NcclCalls& calls = all[rank];
      calls.resize(static_cast<std::size_t>(count));
      std::memcpy(calls.data(), from + sizeof count, calls.size() * sizeof(comm::nccl::Call));
      from += sizeof count + calls.size() * sizeof(comm::nccl::Call);
      for (comm::nccl::Call& call : calls) {
        call.from = from;
        from += bytes_sent(call, rank, size_);
      }
    }
    return all;
  }

  // ---- Splits
  using Vote = std::pair<int, int>;  ///< color, key
  void vote(int rank, std::int64_t split, Vote vote) {
    ranks_[rank].votes[split % 2] = vote;  // as for groups, no rank is two splits ahead
    ranks_[rank].voted = split + 1;
    changed();
  }
  /// Color and size of this rank's part, and its rank in it; set once all ranks
  /// have voted.
  struct Part {
    int color, size, rank;
  };
  std::optional<Part> part_of(int rank, std::int64_t split) const {
    if (!all_ranks([&](const Rank& peer) { return peer.voted > split; })) return std::nullopt;
    const auto [color, key] = ranks_[rank].votes[split % 2];
    Part part{.color = color, .size = 0, .rank = 0};
    for (int peer = 0; peer < size_; ++peer) {
      const Vote vote = ranks_[peer].votes[split % 2];
      if (vote.first != color) continue;
      ++part.size;
      if (std::pair(vote.second, peer) < std::pair(key, rank)) ++part.rank;
    }
    return part;
  }

  // ---- Waiting: by futexes, whose kernel queues survive a killed waiter
  /// The argument of `wait`; read it before checking the condition.
  std::uint32_t changes() const { return changes_; }
  void changed() {
    ++changes_;
    ::syscall(SYS_futex, &changes_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
  }
  /// Returns when something has changed since then, or after a timeout.
  void wait(std::uint32_t seen) const {
    constexpr timespec while_none_wakes{.tv_sec = 0, .tv_nsec = 50'000'000};
    ::syscall(SYS_futex, &changes_, FUTEX_WAIT, seen, &while_none_wakes, nullptr, 0);
  }

 private:
  // A world is followed by two messages per rank, with its calls and their
  // data. Pages that are never written use no memory.
  static constexpr std::int64_t header_bytes = 4096, message_bytes = std::int64_t{128} << 20;
  static constexpr std::int64_t all_bytes = header_bytes + 2 * most_ranks * message_bytes;
  struct Rank {
    std::atomic<std::uint64_t> host;
    std::atomic<std::int64_t> arrived, published,
        voted;  ///< how many groups, turns and splits
    Vote votes[2];
  };

  NcclWorld() = default;
  /// Maps a file or new memory. Either starts as zeros, which is a world
  /// without ranks.
  static void* map(const std::string& folder, const std::string& name) {
    static_assert(sizeof(NcclWorld) <= header_bytes && std::atomic<std::int64_t>::is_always_lock_free);
    int file = -1;
    if (!folder.empty()) {
      file = ::open((folder + "/" + name).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      require(file >= 0 && ::ftruncate(file, all_bytes) == 0, "the fake NCCL cannot make ", folder, "/", name);
    }
    const int kind = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    void* const data = ::mmap(nullptr, all_bytes, PROT_READ | PROT_WRITE, kind | MAP_NORESERVE, file, 0);
    if (file >= 0) ::close(file);
    require(data != MAP_FAILED, "the fake NCCL cannot map ", all_bytes, " bytes");
    return data;
  }
  bool all_ranks(const auto& is) const { return std::all_of(ranks_, ranks_ + size_, is); }
  std::byte* message(int rank, std::int64_t turn) const {
    auto* const begin = reinterpret_cast<std::byte*>(const_cast<NcclWorld*>(this));
    return begin + header_bytes + (2 * rank + turn % 2) * message_bytes;
  }

  int size_;
  std::atomic<std::uint32_t> changes_;
  std::atomic<int> joined_;
  std::atomic<bool> aborted_;
  Rank ranks_[most_ranks];
};

}  // namespace fsdp::testing
