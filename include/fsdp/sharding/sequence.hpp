// SPDX-License-Identifier: Apache-2.0
/// @file
/// Whether sequences are sharded over ranks: the stack's policy for activations.
///
/// With Ulysses, K consecutive ranks share each sequence. Work on single tokens sees this rank's rows; what mixes
/// tokens, attention, sees all rows of this rank's heads. An all-to-all of the K ranks changes one placement into the
/// other. Source: DeepSpeed-Ulysses (Jacobs et al. 2023).
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_parts.hpp>

namespace fsdp {

/// Each rank has whole sequences. Nothing of sequence sharding is compiled.
struct WholeSequences {
  static constexpr std::string_view name = "whole";
  static constexpr bool shards = false;                    ///< whether several ranks share a sequence
  static constexpr int ranks_per_sequence() { return 1; }  ///< ranks that share each sequence
};

/// `ranks` consecutive ranks share each sequence. 1: whole sequences, chosen at run time.
struct Ulysses {
  static constexpr bool shards = true;  ///< whether several ranks share a sequence
  int ranks = 1;                        ///< that share a sequence

  constexpr int ranks_per_sequence() const { return ranks; }  ///< ranks that share each sequence
  std::string text() const { return listed_text(*this); }
  void visit(PolicyParts& parts) {
    parts.word("ulysses");
    parts.number({.member = "ranks", .kind = "K", .help = "consecutive ranks that share each sequence"}, ranks);
  }
};

/// A policy of sequences: whether it shards them, and over how many ranks.
template <class P>
concept SequencePolicy = std::copyable<P> && std::default_initializable<P> && requires(const P policy) {
  requires std::is_same_v<decltype(P::shards), const bool>;
  { policy.ranks_per_sequence() } -> std::convertible_to<int>;
};

/// Throws InputError unless groups of `ranks_per_sequence` consecutive ranks make up a world of `ranks`.
inline void check_ranks_per_sequence(int ranks_per_sequence, int ranks) {
  require<InputError>(ranks_per_sequence >= 1, "sequence: ", ranks_per_sequence,
                      " ranks share each sequence; give at least 1");
  require<InputError>(ranks % ranks_per_sequence == 0, "sequence: ", ranks, " ranks cannot be cut into groups of ",
                      ranks_per_sequence, ", which share each sequence; give a divisor of ", ranks);
}

}  // namespace fsdp
