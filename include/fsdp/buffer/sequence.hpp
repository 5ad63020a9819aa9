// SPDX-License-Identifier: Apache-2.0
/// @file
/// Activations of a sequence that K ranks share. Their type states one of two placements; `redistribute` changes
/// between them.
///
///     OwnRows  -> OwnHeads   all-to-all: own rows of all heads become all rows of own heads
///     OwnHeads -> OwnRows    all-to-all: the way back
/// A rank's rows are consecutive, and its matrices for the other ranks are stored separately, so that no packing is
/// needed: the data received from all ranks, one after the other, form the matrix of all rows.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::buffer {

struct OwnRows {};   ///< this rank's rows of all heads: one matrix per rank with that rank's heads, one after the other
struct OwnHeads {};  ///< all rows of this rank's heads: one matrix, which begins with the rows of the first rank

/// The placement of an activation's elements.
template <class P>
concept SequencePlacement = std::is_same_v<P, OwnRows> || std::is_same_v<P, OwnHeads>;

/// The other placement.
template <SequencePlacement P>
using OtherPlacement = std::conditional_t<std::is_same_v<P, OwnRows>, OwnHeads, OwnRows>;

/// A view of one activation of a shared sequence. T may be const.
template <class T, SequencePlacement P>
struct Activation {
  T* data = nullptr;  ///< pointer to the first element
  /// OwnRows: number of elements of the matrix for each rank. OwnHeads: number of elements of each rank's rows. Must
  /// outlive the collective.
  std::span<const std::int64_t> counts = {};
};

/// Changes the placement of some activations by one all-to-all over the ranks that share the sequence. `to` is complete
/// after a wait on the result; `from` must not change until then.
template <class C, class T, SequencePlacement From, SequencePlacement To>
[[nodiscard]] comm::Pending<C> redistribute(C& sequence, const std::vector<Activation<const T, From>>& from,
                                            const std::vector<Activation<T, To>>& to, comm::Label label = {}) {
  static_assert(
      !std::is_same_v<From, To>,
      "fsdp: redistribute cannot change this placement of activations into that one; the moves are OwnRows to "
      "OwnHeads and OwnHeads to OwnRows");
  require(from.size() == to.size(), "redistribute: ", from.size(), " activations are to become ", to.size());
  std::vector<comm::Exchange<T>> exchanges(from.size());
  for (std::size_t i = 0; i < from.size(); ++i)
    exchanges[i] = {
        .send = from[i].data, .send_counts = from[i].counts, .receive = to[i].data, .receive_counts = to[i].counts};
  return comm::all_to_all(sequence, exchanges, label);
}

}  // namespace fsdp::buffer
