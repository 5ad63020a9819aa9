// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether sequences are sharded over ranks: the stack's policy for activations.
///
/// With Ulysses, K consecutive ranks share each sequence. Operations on single tokens process this rank's rows;
/// attention, which mixes tokens, processes all rows of this rank's heads. An all-to-all over the K ranks converts one
/// placement into the other. Source: DeepSpeed-Ulysses (Jacobs et al. 2023).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/policy_text.hpp>

namespace fsdp {

/// The implementation of sequence sharing for a model: tessera/fsdp/sequence/ulysses.hpp.
template <class Model>
struct SharedSequences;

/// Each rank has whole sequences. No code for sequence sharding is compiled.
struct WholeSequences {
  static constexpr std::string_view name = "whole";
  static constexpr bool shards = false;                    ///< ranks do not share sequences
  static constexpr int ranks_per_sequence() { return 1; }  ///< always 1
  static constexpr int middle_parts() { return 0; }        ///< always 0: attention is not split
};

/// `ranks` consecutive ranks share each sequence. With 1, which can be chosen at run time, each rank has whole
/// sequences.
struct Ulysses {
  static constexpr bool shards = true;  ///< ranks may share a sequence
  template <class Model>
  using Sharing = SharedSequences<Model>;  ///< implementation for a model
  int ranks = 1;                           ///< number of ranks that share a sequence
  /// The number of parts in which attention is computed, a few heads at a time: less data is in flight at once, and the
  /// next exchange can overlap the current attention. 0: as many as the tiling's budget requires.
  int parts = 0;

  constexpr int ranks_per_sequence() const { return ranks; }  ///< returns `ranks`
  constexpr int middle_parts() const { return parts; }        ///< returns `parts`
  std::string text() const { return ranks == 1 ? std::string(WholeSequences::name) : listed_text(*this); }
  void visit(PolicyParts& parts) {
    parts.word("ulysses");
    parts.number({.kind = "K"}, ranks);
    parts.number({.name = "parts"}, this->parts);
  }
  friend constexpr bool operator==(const Ulysses&, const Ulysses&) = default;
};

/// A policy of sequences: whether it shards them, and over how many ranks.
template <class P>
concept SequencePolicy = std::copyable<P> && std::default_initializable<P> && requires(const P policy) {
  requires std::is_same_v<decltype(P::shards), const bool>;
  { policy.ranks_per_sequence() } -> std::convertible_to<int>;
  { policy.middle_parts() } -> std::convertible_to<int>;
};

/// A rank's position if consecutive ranks share each sequence. Group `index` of `count` groups reads the same sequences
/// as rank `index` of `count` ranks without sharing, and this rank has part `member` of the `size` parts of their rows.
struct SequenceGroup {
  int index = 0;   ///< index of this rank's group
  int count = 1;   ///< number of groups
  int member = 0;  ///< index of this rank in its group
  int size = 1;    ///< number of ranks in a group

  friend constexpr bool operator==(const SequenceGroup&, const SequenceGroup&) = default;
};

/// Returns the position of rank `rank` of `ranks`, where `ranks` is a multiple of `ranks_per_sequence`.
constexpr SequenceGroup sequence_group(int rank, int ranks, int ranks_per_sequence) {
  return {.index = rank / ranks_per_sequence,
          .count = ranks / ranks_per_sequence,
          .member = rank % ranks_per_sequence,
          .size = ranks_per_sequence};
}

/// Returns a description of the readers: "4 ranks", or "2 groups of 2 ranks" if several ranks share each sequence.
std::string readers_text(std::int64_t groups, std::int64_t ranks_per_sequence);

/// Throws InputError unless a world of `ranks` can be divided into groups of `ranks_per_sequence` consecutive ranks.
void check_ranks_per_sequence(int ranks_per_sequence, std::int64_t ranks);
/// Throws InputError unless `heads` attention heads can be divided evenly among `ranks_per_sequence` ranks. `ranks`:
/// size of the world, from which the message derives its suggestions.
void check_heads_of_sequence(std::int64_t heads, int ranks_per_sequence, std::int64_t ranks);
/// Throws InputError unless the `heads` heads of one rank can be divided evenly into `middle_parts` parts.
void check_middle_parts(std::int64_t heads, int middle_parts);
/// Throws InputError if a split of attention into parts is requested for whole sequences.
void check_whole_sequences(int middle_parts);
/// Throws InputError unless a sequence has at least one row for each rank that shares it.
void check_sequence_length(std::int64_t sequence_length, int ranks_per_sequence);

}  // namespace fsdp
