// SPDX-License-Identifier: Apache-2.0
/// @file
/// A search for the fastest training configurations that fit in memory, with few evaluations.
///
/// Configurations form families, such as a strategy with its number of micro-batches. Each family has knobs that trade
/// time for memory, such as recomputation and tiles. The search relies on their monotonicity: at a higher level of a
/// knob, a step takes no less time and no more memory. So the least time of a family is the time with all knobs at
/// level 0, which is evaluated first, and its least memory is the memory with all knobs at their last level. These two
/// rule out most families. The rest is searched best first: configurations are evaluated in the order of the lower
/// bounds on their times (uniform-cost search), so that the first one that fits is the fastest one that fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::plan {

/// The level of each knob of a family: all 0 is the fastest configuration, all last levels need the least memory.
using Turned = std::vector<int>;

/// Configurations that differ only in their knobs.
struct Family {
  std::vector<int> levels = {};  ///< number of levels of each knob, at least 1
  /// An earlier family; no configuration of this one is faster than the fastest one there.
  std::optional<std::size_t> after = {};
};

/// Time and memory of a configuration.
struct Outcome {
  double seconds = 0;        ///< seconds per step
  std::int64_t missing = 0;  ///< bytes that a rank or its host lacks; at most 0 if the configuration fits
  std::string refused = {};  ///< reason why the configuration is invalid; empty if it is valid

  /// Returns whether the configuration is valid and fits in memory.
  bool fits() const { return refused.empty() && missing <= 0; }
};

/// A configuration that was evaluated.
struct Asked {
  std::size_t family = 0;
  Turned turned = {};
  Outcome outcome = {};
};

/// The result of the search for one family.
enum class SearchOutcome : std::uint8_t {
  fits,       ///< `asked` is its fastest configuration that fits
  slower,     ///< other families are faster; no remaining configuration of this one is faster than `asked`
  too_large,  ///< no configuration fits; `asked` needs the least memory
  refused,    ///< invalid; `asked` contains the reason
};
/// The result for a family, and the configuration that determined it.
struct FamilyOutcome {
  SearchOutcome fate = SearchOutcome::slower;
  Asked asked = {};  ///< for `slower`, possibly a configuration of the family `after`
};

/// The result of a search.
struct SearchResult {
  /// The fastest configuration that fits of each of the best families, fastest first.
  std::vector<Asked> best = {};
  std::vector<FamilyOutcome> fates = {};  ///< result for each family
  std::int64_t asked = 0;                 ///< number of configurations that were evaluated
};

/// Returns the fastest configuration of each of the `keep` fastest families that fit, and the result for all families.
/// Evaluates no configuration twice.
SearchResult search(std::span<const Family> families, std::size_t keep,
                    FunctionRef<Outcome(std::size_t family, const Turned& turned)> ask);

}  // namespace fsdp::plan
