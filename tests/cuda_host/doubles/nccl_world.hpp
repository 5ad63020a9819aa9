// SPDX-License-Identifier: Apache-2.0
/// @file
/// Shared state of the ranks of a communicator of the fake NCCL: memory of the process for threads, a file for
/// processes.
///
/// Each rank publishes the data that a group of calls sends, and does its own part once all ranks have published. The
/// buffer of a turn is reused two turns later: a rank gets there after all have published the turn in between, so after
/// all have read this one. Nothing is locked, so that a killed rank blocks others only by what it does not publish.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <tessera/fsdp/testing/nccl/calls.hpp>

namespace fsdp::testing::cuda_host {

class NcclWorld {
 public:
  static constexpr int most_ranks = 8;

  /// Opens the world of that name, in a file in `folder`, or in this process if `folder` is empty. Creates it if
  /// absent.
  static std::shared_ptr<NcclWorld> open(const std::string& folder, const std::string& name, int size);

  int size() const { return size_; }

  // ---- Ranks join, connect and abort
  int joined() const { return joined_; }
  /// `host`: a hash of the identity of the rank's host; 0 is none.
  void join(int rank, std::uint64_t host);
  bool on_one_host() const;
  bool aborted() const { return aborted_; }  ///< whether any rank has aborted
  void abort();
  bool connected() const;  ///< whether the hosts of all ranks have reached their first group
  void connect(int rank);

  // ---- Groups
  /// Copies the data that this rank's calls send. Returns an error if it is too large; otherwise empty.
  [[nodiscard]] std::string publish(int rank, std::int64_t turn, const NcclCalls& calls);
  bool published(std::int64_t turn) const;  ///< whether all ranks have published this turn
  /// The calls of all ranks, whose sources are the published copies.
  NcclCallsByRank group(std::int64_t turn) const;

  // ---- Splits
  using Vote = std::pair<int, int>;  ///< color, key
  void vote(int rank, std::int64_t split, Vote vote);
  /// Color and size of this rank's part, and its rank in it; set once all ranks have voted.
  struct Part {
    int color, size, rank;
  };
  std::optional<Part> part_of(int rank, std::int64_t split) const;

  // ---- Waiting
  /// The argument of `wait`; read it before checking the condition.
  std::uint32_t changes() const { return changes_; }
  void changed();
  /// Returns when something has changed since then, or after a timeout.
  void wait(std::uint32_t seen) const;

 private:
  NcclWorld() = default;
  std::byte* message(int rank, std::int64_t turn) const;

  struct Rank {
    std::atomic<bool> connected;
    std::atomic<std::uint64_t> host;
    std::atomic<std::int64_t> published, voted;  ///< how many turns and splits
    Vote votes[2];
  };
  int size_;
  std::atomic<std::uint32_t> changes_;
  std::atomic<int> joined_;
  std::atomic<bool> aborted_;
  Rank ranks_[most_ranks];
};

}  // namespace fsdp::testing::cuda_host
