// SPDX-License-Identifier: Apache-2.0
/// @file
/// Virtual time: the start and end times of operations that run on tracks, wait for each other, and share links.
///
/// Not here: the operations of a training step (step_works.hpp). The result depends only on the arguments.
#pragma once

#include <span>
#include <vector>

#include <tessera/fsdp/plan/collective_times.hpp>

namespace fsdp::plan {

/// An operation. It first takes `seconds`, then transfers data.
struct Work {
  /// Track number; operations of a track run one after the other, in the order of the list.
  int track = 0;
  std::vector<int> after = {};  ///< indices of earlier operations that must end before it begins
  double seconds = 0;           ///< seconds in which it uses no link
  double beside = 1;            ///< relative speed of `seconds` during transfers between ranks; 1: as fast as alone
  double transfer = 0;          ///< seconds of its transfer on idle links
  ByLink demand = {};           ///< fraction of each link's bandwidth that the transfer uses, 0 to 1
};

/// The start and end time of an operation, in seconds from the start.
struct Span {
  double begin = 0, end = 0;
  int waited_for = -1;  ///< index of the operation in `after` that it waited for while its track was free; -1: none

  friend bool operator==(const Span&, const Span&) = default;
};

/// Returns the span of each operation. If the transfers in flight demand more than the bandwidth of a link, all of them
/// are slowed down by the same factor: the bandwidth is divided in proportion to the demands. Throws LogicError for an
/// operation that waits for itself or a later one.
std::vector<Span> spans_of(std::span<const Work> works);

}  // namespace fsdp::plan
