// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/sequence.hpp>

#include <numeric>
#include <vector>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {
namespace {

/// Returns the divisors of a number, as "1, 2 or 4".
std::string divisors_text(std::int64_t number) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t divisor = 1; divisor <= number; ++divisor)
    if (number % divisor == 0) divisors.push_back(divisor);
  std::string text;
  for (std::size_t i = 0; i < divisors.size(); ++i)
    text += message(i == 0 ? "" : i + 1 < divisors.size() ? ", " : " or ", divisors[i]);
  return text;
}

}  // namespace

std::string readers_text(std::int64_t groups, std::int64_t ranks_per_sequence) {
  const bool shares = ranks_per_sequence > 1;
  return message(groups, shares ? " group" : " rank", groups == 1 ? "" : "s",
                 shares ? message(" of ", ranks_per_sequence, " ranks") : "");
}

void check_ranks_per_sequence(int ranks_per_sequence, std::int64_t ranks) {
  require<InputError>(ranks_per_sequence >= 1, "sequence: ", ranks_per_sequence,
                      " ranks share each sequence; give at least 1");
  require<InputError>(ranks % ranks_per_sequence == 0, "sequence: ", ranks, ranks == 1 ? " rank" : " ranks",
                      " cannot be cut into groups of ", ranks_per_sequence, ", which share each sequence; give ",
                      divisors_text(ranks));
}

void check_heads_of_sequence(std::int64_t heads, int ranks_per_sequence, std::int64_t ranks) {
  require<InputError>(heads % ranks_per_sequence == 0, "sequence: ", heads, heads == 1 ? " head" : " heads",
                      " of attention cannot be divided among ", ranks_per_sequence,
                      " ranks that share each sequence; of ", ranks, " ranks ", divisors_text(std::gcd(heads, ranks)),
                      " can share one");
}

void check_middle_parts(std::int64_t heads, int middle_parts) {
  require<InputError>(middle_parts >= 1 && heads % middle_parts == 0, "sequence: the ", heads,
                      heads == 1 ? " head" : " heads", " of each rank cannot be cut into ", middle_parts,
                      " parts; give ", divisors_text(heads));
}

void check_whole_sequences(int middle_parts) {
  require<InputError>(middle_parts <= 1, "sequence: attention is to be done in ", middle_parts,
                      " parts, which ranks that share a sequence do; let several share one, or give 1 part");
}

void check_sequence_length(std::int64_t sequence_length, int ranks_per_sequence) {
  require<InputError>(sequence_length >= ranks_per_sequence, "sequence: a length of ", sequence_length,
                      " leaves some of the ", ranks_per_sequence,
                      " ranks that share each sequence without a row; give a length of at least ", ranks_per_sequence,
                      ", or at most ", sequence_length, sequence_length == 1 ? " rank" : " ranks");
}

}  // namespace fsdp
