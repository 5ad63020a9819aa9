// SPDX-License-Identifier: Apache-2.0
/// @file
/// Several sources of data with weights: which source a window of the run comes from, and which of its windows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdp::data {

/// The n-th window of a run, a pure function of the seed, the weights and n. Of the first n windows source i has
/// n x its share, to within the number of sources: the first takes its quota of all, the second its quota of what is
/// left, and so on. Each source's windows are permuted anew whenever all were used.
class Mixture {
 public:
  /// A source's share, relative to the others', and its size.
  struct Source {
    double weight = 1;
    std::int64_t windows = 0;  ///< at least 1
  };
  /// A window, by its source.
  struct Window {
    std::size_t source = 0;
    std::int64_t window = 0;

    friend bool operator==(const Window&, const Window&) = default;
  };

  /// Throws LogicError where there is no source, or one has no window or no weight.
  Mixture(std::uint64_t seed, std::vector<Source> sources);
  /// The n-th window, from 0.
  Window operator()(std::int64_t n) const;

 private:
  std::uint64_t seed_;
  std::vector<Source> sources_;
  std::vector<std::uint64_t> quotas_;  // of what the sources before leave, in units of 2^-32
};

}  // namespace fsdp::data
