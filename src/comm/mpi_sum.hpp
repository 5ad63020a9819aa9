// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sum of a reduce_scatter: reads peers' contributions in place, or receives them piece by piece into bounded
/// scratch, and adds them up.
///
/// Float contributions are sent directly from the caller's memory; bf16 ones are rounded into scratch first. Two pieces
/// per peer and direction are in flight, so that one is summed while the next arrives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tessera/comm/mpi_rank.hpp>
#include <tessera/comm/transfer.hpp>

#include "messages.hpp"

namespace fsdp::comm {

/// How a peer and this rank exchange contributions.
struct SumPeer {
  std::span<const std::byte* const> sources;  ///< the peer's `full` by segment, read in place; empty: receive pieces
  bool reads = false;  ///< whether the peer reads this rank's contribution in place: nothing is sent
};

class PieceSum {
 public:
  PieceSum(Messages& messages, std::int64_t scratch_bytes);

  /// Starts the sum of one transfer; the previous one must be complete. `peers` has one entry per rank; this rank's
  /// entry is unused. If no pieces arrive, the sum is complete on return.
  /// `threads`: as in sum_in_order.
  void begin(std::uint64_t ticket, const Transfer& transfer, std::span<const SumPeer> peers, int threads);
  /// Handles a completed message of kind `piece`.
  void on(const Message& message);
  bool idle() const { return transfer_ == nullptr; }
  bool done() const { return receiving_ == 0 && sending_ == 0; }
  void end() { transfer_ = nullptr; }
  std::uint64_t ticket() const { return ticket_; }

 private:
  static constexpr std::int64_t slots = PieceScratch::slots;

  /// At most piece_elements_ elements of one segment.
  struct Piece {
    std::size_t segment = 0;
    std::int64_t begin = 0;  ///< first element in `full`
    std::int64_t count = 0;
    std::int64_t own_begin = 0;  ///< first element in the rank's own piece of the segment
  };
  /// A position within one rank's part, as a segment and an offset.
  struct Cursor {
    std::size_t segment = 0;
    std::int64_t offset = 0;
  };

  bool arrives_from(int peer) const;
  bool next(Cursor& cursor, int rank, Piece& piece) const;
  void post_receives(std::int64_t slot);
  void post_send(int peer, std::int64_t slot);
  void sum(const Piece& piece, std::int64_t slot);
  std::byte* scratch(bool sent, std::int64_t slot, int peer);

  Messages& messages_;
  std::vector<std::byte> memory_;
  std::byte* scratch_ = nullptr;  ///< aligned start within memory_
  std::int64_t piece_bytes_ = 0;

  std::uint64_t ticket_ = 0;
  const Transfer* transfer_ = nullptr;
  std::span<const SumPeer> peers_;
  int threads_ = 0;
  int arrive_from_ = 0;  ///< number of peers that send pieces
  std::int64_t piece_elements_ = 0;
  std::vector<Cursor> to_send_;  ///< next position to send, by peer
  Cursor to_receive_;
  std::array<Piece, slots> arriving_;
  std::array<int, slots> missing_{};  ///< by slot: number of peers whose part has not arrived
  int receiving_ = 0;                 ///< number of slots in use
  std::int64_t sending_ = 0;          ///< number of messages being sent
  std::vector<Contribution> contributions_;
};

}  // namespace fsdp::comm
