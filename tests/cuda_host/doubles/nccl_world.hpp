// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the ranks of a communicator of NCCL's double share: threads a mapping of their process, processes a file.
///
/// Ranks publish what a group of calls sends, and each does its own part once all have. A turn's place is written again
/// two turns later: a rank comes there after all have published the turn between, so after all have read this one.
/// Nothing is locked, so that a rank that is killed holds nobody up but by what it does not publish.
#pragma once

#include <atomic>
#include <chrono>
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

  /// Of that name, in a file of `folder`, or, where that is empty, in this process. Made where there is none.
  static std::shared_ptr<NcclWorld> open(const std::string& folder, const std::string& name, int size);

  int size() const { return size_; }

  // ---- Ranks come, connect and give up
  int joined() const { return joined_; }
  void join();
  bool aborted() const { return aborted_; }  ///< by some rank
  void abort();
  bool connected() const;  ///< whether all ranks' hosts came to their first group
  void connect(int rank);

  // ---- Groups
  /// Copies what this rank's calls send. Where that is too much, why.
  [[nodiscard]] std::string publish(int rank, std::int64_t turn, const NcclCalls& calls);
  bool published(std::int64_t turn) const;  ///< by all
  /// All ranks' calls, which read the published copies.
  NcclCallsByRank group(std::int64_t turn) const;

  // ---- Splits
  using Vote = std::pair<int, int>;  ///< color, key
  void vote(int rank, std::int64_t split, Vote vote);
  /// Color of this rank's part, its size and the rank in it, once all have voted.
  struct Part {
    int color, size, rank;
  };
  std::optional<Part> part_of(int rank, std::int64_t split) const;

  // ---- Waiting
  /// What to give `wait`: read before the condition is looked at.
  std::uint32_t changes() const { return changes_; }
  void changed();
  /// Returns when something has changed since, and after a while in any case.
  void wait(std::uint32_t seen) const;

 private:
  NcclWorld() = default;
  std::byte* message(int rank, std::int64_t turn) const;

  struct Rank {
    std::atomic<bool> connected;
    std::atomic<std::int64_t> published, voted;  ///< how many
    Vote votes[2];
  };
  int size_;
  std::atomic<std::uint32_t> changes_;
  std::atomic<int> joined_;
  std::atomic<bool> aborted_;
  Rank ranks_[most_ranks];
};

}  // namespace fsdp::testing::cuda_host
