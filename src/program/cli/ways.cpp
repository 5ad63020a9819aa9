// SPDX-License-Identifier: Apache-2.0
#include "ways.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/progress_line.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::cli {
namespace {

constexpr std::size_t kept_ways = 3;
constexpr double worth_a_choice = 0.998;  // of the time: what is beside a way and no faster than that is not told

/// How many ways were estimated, on a terminal.
class Progress {
 public:
  void asked() { line_.show(message("--fit: ", ++asked_, " ways estimated")); }

 private:
  report::ProgressLine line_;
  int asked_ = 0;
};

plan::Outcome outcome_of(const Train& train, EstimateStep estimate) {
  try {
    const plan::Estimate& step = estimate(train).estimate;
    return {.seconds = step.seconds, .missing = std::max(-step.device.left(), -step.host.left())};
  } catch (const InputError& error) {
    return {.refused = error.what()};
  }
}

/// Returns a way, or one beside it that is faster and fits too.
Way best_beside(const Train& train, const FitSpace& space, EstimateStep estimate, Progress& progress) {
  Way best{.train = train, .step = estimate(train)};
  for (Train& other : space.beside(train)) {
    try {
      progress.asked();
      train::EstimatedStep step = estimate(other);
      if (step.estimate.fits() && step.estimate.seconds < worth_a_choice * best.step.estimate.seconds)
        best = {.train = std::move(other), .step = std::move(step)};
    } catch (const InputError&) {
      continue;  // what is beside a way need not be one
    }
  }
  return best;
}

/// Throws InputError: what is missing at the least.
[[noreturn]] void refuse(const plan::SearchResult& found, const FitSpace& space, EstimateStep estimate) {
  const plan::FamilyFate* least = nullptr;
  for (const plan::FamilyFate& fate : found.fates)
    if (fate.fate == plan::Fate::too_large &&
        (least == nullptr || fate.asked.outcome.missing < least->asked.outcome.missing))
      least = &fate;
  if (least == nullptr) throw InputError("--fit: no way can be: " + found.fates.front().asked.outcome.refused);
  const Train train = space.train(least->asked.family, least->asked.turned);
  const plan::Estimate step = estimate(train).estimate;
  const bool device = step.device.left() < 0;
  const plan::Need& need = device ? step.device : step.host;
  throw InputError(message(
      "--fit: none of ", space.size(), " ways fits; the one that takes the least, ", space.flags(train), ", needs ",
      report::bytes_text(need.needed), " of ", device ? "each rank" : "each node's host memory", ", which has ",
      report::bytes_text(need.available), "; take more ranks, a shorter --seq-len or a cluster with more memory"));
}

}  // namespace

FoundWays find_ways(const Train& asked, const FitSpace& space, EstimateStep estimate) {
  if (space.families().empty()) (void)estimate(asked);  // says what is wrong with it
  require<InputError>(!space.families().empty(), "--fit: no way is left to try; leave out some flags");
  FoundWays ways;
  {
    Progress progress;
    ways.search = plan::search(space.families(), kept_ways, [&](std::size_t family, const plan::Turned& turned) {
      progress.asked();
      return outcome_of(space.train(family, turned), estimate);
    });
    for (const plan::Asked& each : ways.search.best)
      ways.best.push_back(best_beside(space.train(each.family, each.turned), space, estimate, progress));
  }
  if (ways.best.empty()) refuse(ways.search, space, estimate);
  std::ranges::stable_sort(ways.best, {}, [](const Way& way) { return way.step.estimate.seconds; });
  return ways;
}

}  // namespace fsdp::cli
