// SPDX-License-Identifier: Apache-2.0
/// @file
/// A search among ways to train for those that fit and take the least time, with few of them asked.
///
/// Ways are families, such as a strategy with its number of micro-batches, and in each family knobs that trade time for
/// memory, such as recomputation and tiles. It relies on what is true of such knobs: turned further, a step takes no
/// less time and no more memory. So the least time of a family is that of its knobs unturned, which is asked first, and
/// what it needs at least is that of all turned to the end. Both tell of most families that they cannot win. The rest
/// is best first: ways are asked in the order of the least time that they can have (uniform-cost search), so that the
/// first that fits is the fastest that does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::plan {

/// How far each knob of a family is turned: 0 is the fastest way, its last level the one that takes the least memory.
using Turned = std::vector<int>;

/// Ways that differ in their knobs alone.
struct Family {
  std::vector<int> levels = {};           ///< of each knob, at least 1
  std::optional<std::size_t> after = {};  ///< an earlier family; this one's ways are no faster than that one's fastest
};

/// What a way takes.
struct Outcome {
  double seconds = 0;        ///< of a step
  std::int64_t missing = 0;  ///< bytes that a rank or its host lacks; at most 0 if it fits
  std::string refused = {};  ///< why there is no such way; empty: there is

  /// Whether there is such a way, and memory for it.
  bool fits() const { return refused.empty() && missing <= 0; }
};

/// A way that was asked.
struct Asked {
  std::size_t family = 0;
  Turned turned = {};
  Outcome outcome = {};
};

/// What became of a family.
enum class Fate : std::uint8_t {
  fits,       ///< `asked` is its fastest way that fits
  slower,     ///< others are faster than `asked`, than which no way of it that is left is faster
  too_large,  ///< it fits in no way; `asked` takes the least
  refused,    ///< `asked` says why
};
/// A family's fate, and the way that tells of it.
struct FamilyFate {
  Fate fate = Fate::slower;
  Asked asked = {};  ///< of `slower` perhaps a way of the family `after` which it is
};

/// What a search found.
struct SearchResult {
  std::vector<Asked> best = {};        ///< of each family its fastest way that fits, the fastest first
  std::vector<FamilyFate> fates = {};  ///< of each family
  std::int64_t asked = 0;              ///< ways that were asked
};

/// Returns the fastest way of each of the `keep` fastest families that fit, and what became of all. Asks for no way
/// twice.
SearchResult search(std::span<const Family> families, std::size_t keep,
                    FunctionRef<Outcome(std::size_t family, const Turned& turned)> ask);

}  // namespace fsdp::plan
