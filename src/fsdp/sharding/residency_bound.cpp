// SPDX-License-Identifier: Apache-2.0
#include "residency_bound.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>

namespace fsdp::sharding {
namespace {

/// A transition from one option of a group to a longer one.
struct Increment {
  double saved = 0;  ///< gathered elements that it saves
  double held = 0;   ///< additional elements held, summed over computations

  double saved_for_each() const { return held > 0 ? saved / held : std::numeric_limits<double>::infinity(); }
};

/// Returns the elements that an option holds, summed over computations [first, last).
double held_by(const HoldOption& option, std::int64_t elements, std::size_t first, std::size_t last) {
  std::int64_t times = 0;
  for (std::size_t k = first; k < last; ++k) times += option.live[k];
  return static_cast<double>(times) * static_cast<double>(elements);
}

/// Appends the increments of a group, starting at its first option, in descending order of savings per element held:
/// the upper hull of its options.
void append_increments(std::vector<Increment>& increments, const std::vector<HoldOption>& options,
                       const std::vector<double>& held) {
  const auto increment = [&](std::size_t from, std::size_t to) {
    return Increment{static_cast<double>(options[from].gathered - options[to].gathered), held[to] - held[from]};
  };
  for (std::size_t at = 0; at + 1 < options.size();) {
    std::size_t best = at + 1;
    for (std::size_t to = at + 2; to < options.size(); ++to)
      if (increment(at, to).saved_for_each() >= increment(at, best).saved_for_each()) best = to;
    increments.push_back(increment(at, best));
    at = best;
  }
}

/// Returns the most elements that can be saved during computations [first, last).
double most_saved(std::int64_t budget, const std::vector<std::int64_t>& elements,
                  const std::vector<std::vector<HoldOption>>& options, std::size_t first, std::size_t last) {
  double room = static_cast<double>(budget) * static_cast<double>(last - first);
  std::vector<Increment> increments;
  for (std::size_t group = 0; group < options.size(); ++group) {
    std::vector<double> held;
    for (const HoldOption& option : options[group]) held.push_back(held_by(option, elements[group], first, last));
    room -= held.front();
    append_increments(increments, options[group], held);
  }
  std::ranges::sort(increments, std::ranges::greater(), &Increment::saved_for_each);
  double saved = 0;
  for (const Increment& one : increments) {
    const double part = one.held <= room ? 1 : room > 0 ? room / one.held : 0;
    saved += part * one.saved;
    room -= part * one.held;
  }
  return saved;
}

}  // namespace

std::int64_t least_gathered_within(std::int64_t budget, const std::vector<std::int64_t>& elements,
                                   const std::vector<std::vector<HoldOption>>& options) {
  std::int64_t without = 0;
  for (const std::vector<HoldOption>& of_group : options) without += of_group.front().gathered;
  const std::size_t computations = options.front().front().live.size();
  double saved = most_saved(budget, elements, options, 0, computations);
  for (std::size_t k = 0; k < computations; ++k)
    saved = std::min(saved, most_saved(budget, elements, options, k, k + 1));
  // The savings are an integer. Before rounding down, a margin larger than the rounding error of the sums is added.
  return without - static_cast<std::int64_t>(std::floor(saved * (1 + 1e-14) + 1e-6));
}

}  // namespace fsdp::sharding
