// SPDX-License-Identifier: Apache-2.0
/// @file
/// A mixture of weighted data sources: maps each window of a run to a source and one of its windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::data {

/// Draws the n-th window of a run: a pure function of seed, weights and n. Among the first n windows, source i has n x
/// its share, to within the number of sources: the first source takes its quota of all windows, the second its quota of
/// the rest, and so on. A source whose windows are all used starts again with a new permutation.
class Mixture {
 public:
  /// A source of windows.
  struct Source {
    double weight = 1;         ///< relative to the other sources'
    std::int64_t windows = 0;  ///< at least 1
  };
  /// A window of a source.
  struct Window {
    std::size_t source = 0;
    std::int64_t window = 0;

    friend bool operator==(const Window&, const Window&) = default;
  };

  /// Throws LogicError if there are no sources, or one has no windows or no positive weight.
  Mixture(std::uint64_t seed, std::vector<Source> sources);
  /// Returns the n-th window, counted from 0.
  Window operator()(std::int64_t n) const;

 private:
  std::uint64_t seed_;
  std::vector<Source> sources_;
  std::vector<std::uint64_t> quotas_;  // of the windows that earlier sources leave, in units of 2^-32
};

}  // namespace fsdp::data
