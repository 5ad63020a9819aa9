// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether sequences are sharded over ranks: the stack's policy for activations.
///
/// With Ulysses, K consecutive ranks share each sequence. Work on single tokens sees this rank's rows; what mixes
/// tokens, attention, sees all rows of this rank's heads. An all-to-all of the K ranks changes one placement into the
/// other. Source: DeepSpeed-Ulysses (Jacobs et al. 2023).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/policy_parts.hpp>

namespace fsdp {

/// How ranks share the sequences of a model: tessera/fsdp/sequence/ulysses.hpp.
template <class Model>
struct SharedSequences;

/// Each rank has whole sequences. Nothing of sequence sharding is compiled.
struct WholeSequences {
  static constexpr std::string_view name = "whole";
  static constexpr bool shards = false;                    ///< no rank shares a sequence
  static constexpr int ranks_per_sequence() { return 1; }  ///< the rank that has it
  static constexpr int middle_parts() { return 0; }        ///< nothing is cut
};

/// `ranks` consecutive ranks share each sequence. 1: whole sequences, chosen at run time.
struct Ulysses {
  static constexpr bool shards = true;  ///< ranks may share a sequence
  template <class Model>
  using Sharing = SharedSequences<Model>;  ///< what they do to share it
  int ranks = 1;                           ///< that share a sequence
  /// In which attention is done, a few heads at a time: less is on its way at once, and the next exchange can run
  /// beside the present attention. 0: in as many as the tiling's budget asks for.
  int parts = 0;

  constexpr int ranks_per_sequence() const { return ranks; }  ///< `ranks`
  constexpr int middle_parts() const { return parts; }        ///< `parts`
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

/// A rank's place where consecutive ranks share each sequence: group `index` of `count` reads the sequences that rank
/// `index` of `count` ranks would read alone, and this rank has part `member` of `size` of their rows.
struct SequenceGroup {
  int index = 0;   ///< of this rank's group
  int count = 1;   ///< of groups
  int member = 0;  ///< this rank's place in its group
  int size = 1;    ///< ranks of a group

  friend constexpr bool operator==(const SequenceGroup&, const SequenceGroup&) = default;
};

/// Returns the place of rank `rank` of `ranks`, a multiple of `ranks_per_sequence`.
constexpr SequenceGroup sequence_group(int rank, int ranks, int ranks_per_sequence) {
  return {.index = rank / ranks_per_sequence,
          .count = ranks / ranks_per_sequence,
          .member = rank % ranks_per_sequence,
          .size = ranks_per_sequence};
}

/// Returns who reads: "4 ranks", or "2 groups of 2 ranks" where several share each sequence.
std::string readers_text(std::int64_t groups, std::int64_t ranks_per_sequence);

/// Throws InputError unless groups of `ranks_per_sequence` consecutive ranks make up a world of `ranks`.
void check_ranks_per_sequence(int ranks_per_sequence, std::int64_t ranks);
/// Throws InputError unless so many ranks can divide the heads of attention evenly. `ranks`: of the world, for the
/// numbers that the sentence suggests.
void check_heads_of_sequence(std::int64_t heads, int ranks_per_sequence, std::int64_t ranks);
/// Throws InputError unless so many parts can divide the heads of one rank evenly.
void check_middle_parts(std::int64_t heads, int middle_parts);
/// Throws InputError if attention of whole sequences is to be cut into parts.
void check_whole_sequences(int middle_parts);
/// Throws InputError unless a sequence has a row for each rank that shares it.
void check_sequence_length(std::int64_t sequence_length, int ranks_per_sequence);

}  // namespace fsdp
