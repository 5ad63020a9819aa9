// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a step's batch is cut where results must not depend on the number of ranks: into V pieces, of which piece v is
/// micro-batch v / P of rank v % P, on any number P of ranks.
///
/// An owner of a shard adds the pieces' gradients one after the other, so that the sum is ((g0 + g1) + g2) + ... for
/// every P. Where P does not divide V, some ranks have no piece in the last micro-batch. A step then takes as long as
/// one of ceil(V / P) P pieces.
#pragma once

namespace fsdp::sharding {

/// Micro-batches of a step of `pieces` pieces, at least one, on `ranks` ranks.
constexpr int micro_batches_of(int pieces, int ranks) { return (pieces - 1) / ranks + 1; }

/// The number of a rank's piece in a micro-batch; it has one if that number is below `pieces`.
constexpr int piece_of(int micro_batch, int rank, int ranks) { return micro_batch * ranks + rank; }

/// Number of pieces that a rank computes: those of its first micro-batches.
constexpr int pieces_of_rank(int pieces, int rank, int ranks) {
  return pieces > rank ? (pieces - rank - 1) / ranks + 1 : 0;
}

}  // namespace fsdp::sharding
