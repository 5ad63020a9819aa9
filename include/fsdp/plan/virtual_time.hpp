// SPDX-License-Identifier: Apache-2.0
/// @file
/// Virtual time: when works begin and end that run on tracks, wait for each other, and share links.
///
/// Not here: what the works of a training step are (step_works.hpp). The result depends on the arguments alone.
#pragma once

#include <span>
#include <vector>

#include <tessera/fsdp/plan/collective_times.hpp>

namespace fsdp::plan {

/// A piece of work. It first takes `seconds`, then transfers.
struct Work {
  int track = 0;                ///< works of a track run one after the other, in the order of the list
  std::vector<int> after = {};  ///< numbers of earlier works that must be over before it begins
  double seconds = 0;           ///< in which it uses no link
  double beside = 1;            ///< how fast those pass while a transfer uses a link between ranks; 1: as alone
  double transfer = 0;          ///< seconds of its transfer on idle links
  ByLink demand = {};           ///< part of each link's bandwidth that the transfer takes, 0 to 1
};

/// When a work ran, in seconds from the start.
struct Span {
  double begin = 0, end = 0;
  int waited_for = -1;  ///< the work of `after` that it began behind, where its track was free before; -1: none

  friend bool operator==(const Span&, const Span&) = default;
};

/// Returns the span of each work. Where the transfers under way would take more than a link has, each gets the same
/// part of what it would take alone: the bandwidth is cut in proportion to the demands. Throws LogicError for a work
/// that waits for itself or a later one.
std::vector<Span> spans_of(std::span<const Work> works);

}  // namespace fsdp::plan
