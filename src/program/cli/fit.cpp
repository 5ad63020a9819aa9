// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/estimate.hpp>
#include <tessera/trainer/report/progress_line.hpp>
#include <tessera/trainer/report/report.hpp>

#include "stack_lines.hpp"

namespace fsdp::cli {
namespace {

constexpr std::size_t kept_ways = 3;
constexpr double worth_a_choice = 0.998;  // of the time: what is beside a way and no faster than that is not told

/// A way that fits, and its step.
struct Way {
  Train train;
  train::EstimatedStep step;
};

/// How many ways were estimated, on a terminal.
class Progress {
 public:
  void asked() { line_.show(message("plan --fit: ", ++asked_, " ways estimated")); }

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

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// What became of a strategy: of its families' fates the one that came nearest to being chosen.
struct StrategyFate {
  std::string strategy;
  plan::FamilyFate fate;
};

bool nearer(const plan::FamilyFate& a, const plan::FamilyFate& b) {
  if (a.fate != b.fate) return a.fate < b.fate;
  if (a.fate == plan::Fate::too_large) return a.asked.outcome.missing < b.asked.outcome.missing;
  return a.asked.outcome.seconds < b.asked.outcome.seconds;
}

std::vector<StrategyFate> fates_of_strategies(const plan::SearchResult& found, const FitSpace& space) {
  std::vector<StrategyFate> list;
  for (std::size_t family = 0; family < found.fates.size(); ++family) {
    const std::string strategy = space.strategy(family);
    if (list.empty() || list.back().strategy != strategy)
      list.push_back({strategy, found.fates[family]});
    else if (nearer(found.fates[family], list.back().fate))
      list.back().fate = found.fates[family];
  }
  std::erase_if(list, [](const StrategyFate& each) { return each.fate.fate == plan::Fate::fits; });
  return list;
}

/// Why a strategy is not among the best.
std::string why(const plan::FamilyFate& fate, const FitSpace& space) {
  const plan::Outcome& outcome = fate.asked.outcome;
  switch (fate.fate) {
    case plan::Fate::slower: return message("slower: at least ", report::seconds_text(outcome.seconds));
    case plan::Fate::too_large:
      return message("does not fit: ", report::bytes_text(outcome.missing), " too much with ",
                     space.flags(space.train(fate.asked.family, fate.asked.turned)));
    case plan::Fate::refused: return first_line(outcome.refused);
    case plan::Fate::fits: break;
  }
  return "";
}

/// Throws InputError: what is missing at the least.
[[noreturn]] void refuse(const plan::SearchResult& found, const FitSpace& space, EstimateStep estimate) {
  const plan::FamilyFate* least = nullptr;
  for (const plan::FamilyFate& fate : found.fates)
    if (fate.fate == plan::Fate::too_large &&
        (least == nullptr || fate.asked.outcome.missing < least->asked.outcome.missing))
      least = &fate;
  if (least == nullptr) throw InputError("plan --fit: no way can be: " + found.fates.front().asked.outcome.refused);
  const Train train = space.train(least->asked.family, least->asked.turned);
  const plan::Estimate step = estimate(train).estimate;
  const bool device = step.device.left() < 0;
  const plan::Need& need = device ? step.device : step.host;
  throw InputError(message("plan --fit: none of ", space.size(), " ways fits; the one that takes the least, ",
                           space.flags(train), ", needs ", report::bytes_text(need.needed), " of ",
                           device ? "each rank" : "each node's host memory", ", which has ",
                           report::bytes_text(need.available), "; take more ranks (--ranks), a shorter --seq-len or a ",
                           "cluster with more memory"));
}

std::string text_of(const std::vector<Way>& ways, const plan::SearchResult& found, const FitSpace& space,
                    const Plan& plan) {
  std::string text = message("the fastest of ", space.size(), " ways that fit on ", *plan.train.options.cluster, "; ",
                             found.asked, " had to be estimated\n");
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const plan::Estimate& step = ways[i].step.estimate;
    text += message(i + 1, "  ", space.flags(ways[i].train), "\n   ", report::estimate_line(step), "\n");
  }
  const std::vector<StrategyFate> others = fates_of_strategies(found, space);
  if (!others.empty()) text += "others\n";
  for (const auto& [strategy, fate] : others) text += message("   ", strategy, ": ", why(fate, space), "\n");
  if (!space.not_compiled().empty()) {
    text += "not tried, since this program has no such stacks (tessera stacks)\n";
    for (const std::string& flags : space.not_compiled()) text += message("   ", flags, "\n");
  }
  const Train& first = ways.front().train;
  return text + "the first in C++\n" + stack_lines(first.stack, first.options.sequence.ranks > 1) + "\n\n" +
         report::estimate_text(ways.front().step.estimate, title_of(ways.front().step, *plan.train.options.cluster));
}

std::string json_of(const std::vector<Way>& ways, const plan::SearchResult& found, const FitSpace& space,
                    const Plan& plan) {
  auto best = nlohmann::ordered_json::array(), others = nlohmann::ordered_json::array();
  for (const Way& way : ways)
    best.push_back({{"flags", space.flags(way.train)},
                    {"stack", stack_lines(way.train.stack, way.train.options.sequence.ranks > 1)},
                    {"estimate", nlohmann::ordered_json::parse(report::estimate_json(
                                     way.step.estimate, title_of(way.step, *plan.train.options.cluster)))}});
  for (const auto& [strategy, fate] : fates_of_strategies(found, space))
    others.push_back({{"flags", strategy}, {"why", why(fate, space)}});
  const nlohmann::ordered_json object = {{"ways", space.size()},
                                         {"estimated", found.asked},
                                         {"best", best},
                                         {"others", others},
                                         {"not_compiled", space.not_compiled()}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const HasStack& has, EstimateStep estimate) {
  require<InputError>(!command->train.options.trace,
                      "--trace is of one step, and --fit looks for several; leave one of them out");
  const FitSpace space(command->train, command.flags, cluster, has);
  if (space.families().empty()) (void)estimate(command->train);  // says what is wrong with it
  require<InputError>(!space.families().empty(), "plan --fit: no way is left to try; leave out some flags");
  plan::SearchResult found;
  std::vector<Way> ways;
  {
    Progress progress;
    found = plan::search(space.families(), kept_ways, [&](std::size_t family, const plan::Turned& turned) {
      progress.asked();
      return outcome_of(space.train(family, turned), estimate);
    });
    for (const plan::Asked& each : found.best)
      ways.push_back(best_beside(space.train(each.family, each.turned), space, estimate, progress));
  }
  if (ways.empty()) refuse(found, space, estimate);
  std::ranges::stable_sort(ways, {}, [](const Way& way) { return way.step.estimate.seconds; });
  if (!train::tells_of_plans()) return 0;
  print_text(stdout,
             command->plan.json ? json_of(ways, found, space, *command) : text_of(ways, found, space, *command));
  return 0;
}

}  // namespace fsdp::cli
