// SPDX-License-Identifier: Apache-2.0
/// @file
/// What ranks say to each other when they meet. Both sides are of one kind of machine: bytes stand as in memory.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <comm/rendezvous.hpp>

namespace fsdp::comm {

inline constexpr std::array<char, 16> rendezvous_mark = {'t', 'e', 's', 's', 'e', 'r', 'a', ' ',
                                                         'm', 'e', 'e', 't', 's', ' ', '1', '\n'};

/// A rank's question and rank 0's answer, which its bytes follow if it is not refused.
struct RendezvousMessage {
  std::array<char, 16> mark = rendezvous_mark;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t bytes = 0;
  std::uint64_t number = 0;  ///< of the question, drawn by who asks; the answer repeats it
  std::int64_t refused = 0;  ///< in an answer: somebody of this rank was here before

  friend bool operator==(const RendezvousMessage&, const RendezvousMessage&) = default;
};

/// Throws InputError where rank 0 cannot mean us.
void require_ours(const RendezvousMessage& asked, const RendezvousMessage& answer, const std::string& where);

/// "rank 1, rank 3": those of [1, size) that have not come, from a list of flags.
template <class Came>
std::string missing_ranks(const Came& came) {
  std::string text;
  for (std::size_t rank = 1; rank < came.size(); ++rank)
    if (!came[rank]) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return text;
}

/// A number that no other question has.
std::uint64_t draw_number();

}  // namespace fsdp::comm
