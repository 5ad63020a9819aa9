// SPDX-License-Identifier: Apache-2.0
/// @file
/// The messages of a rendezvous. They are sent without conversion: both sides must have the same byte order.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <tessera/comm/rendezvous.hpp>

namespace fsdp::comm {

inline constexpr std::array<char, 16> rendezvous_mark = {'t', 'e', 's', 's', 'e', 'r', 'a', ' ',
                                                         'm', 'e', 'e', 't', 's', ' ', '1', '\n'};

/// A rank's request, and rank 0's answer; rank 0's bytes follow the answer unless it is a refusal.
struct RendezvousMessage {
  std::array<char, 16> mark = rendezvous_mark;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int64_t bytes = 0;
  std::uint64_t number = 0;  ///< random number drawn by the requesting rank; the answer repeats it
  std::int64_t refused = 0;  ///< in an answer: 1 if another process has already connected as this rank

  friend bool operator==(const RendezvousMessage&, const RendezvousMessage&) = default;
};

/// Throws InputError unless `answer` is rank 0's positive answer to `asked`.
void require_ours(const RendezvousMessage& asked, const RendezvousMessage& answer, const std::string& where);

/// Returns a list such as "rank 1, rank 3" of the ranks from 1 on whose flag in `came` is not set.
template <class Came>
std::string missing_ranks(const Came& came) {
  std::string text;
  for (std::size_t rank = 1; rank < came.size(); ++rank)
    if (!came[rank]) text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  return text;
}

/// Returns a random number that identifies a request.
std::uint64_t draw_number();

}  // namespace fsdp::comm
