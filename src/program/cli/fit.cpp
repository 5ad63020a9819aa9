// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <algorithm>
#include <cstdio>
#include <set>

#include <range/v3/view/enumerate.hpp>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/report/console.hpp>
#include <tessera/trainer/report/report.hpp>

#include "../../fsdp/core/json/strict_json.hpp"

namespace fsdp::cli {
namespace {

/// A configuration that fits, with its estimated step.
struct Configuration {
  Train train;
  train::EstimatedStep step;
};

struct FoundConfigurations {
  std::vector<Configuration> best = {};  ///< at least one configuration, fastest first
  plan::SearchResult search = {};
};

constexpr std::size_t kept_ways = 3;
constexpr double worth_a_choice = 0.998;  // a variant must take less than this fraction of the time to be reported

plan::Outcome outcome_of(const Train& train, EstimateStep estimate) {
  try {
    const plan::Estimate& step = estimate(train).estimate;
    return {.seconds = step.seconds, .missing = std::max(-step.device.left(), -step.host.left())};
  } catch (const InputError& error) {
    return {.refused = error.what()};
  }
}

/// Returns a configuration with its estimated step, or a variant of it (FitSpace::beside) that is faster and also fits.
Configuration best_variant(Configuration best, const FitSpace& space, EstimateStep estimate) {
  for (Train& other : space.beside(best.train)) {
    try {
      train::EstimatedStep step = estimate(other);
      if (step.estimate.fits() && step.estimate.seconds < worth_a_choice * best.step.estimate.seconds)
        best = {.train = std::move(other), .step = std::move(step)};
    } catch (const InputError&) {
      continue;  // a variant may be invalid
    }
  }
  return best;
}

/// Throws InputError with the smallest amount of missing memory.
[[noreturn]] void refuse(const plan::SearchResult& found, const FitSpace& space, EstimateStep estimate) {
  const plan::FamilyOutcome* least = nullptr;
  for (const plan::FamilyOutcome& fate : found.fates)
    if (fate.fate == plan::SearchOutcome::too_large &&
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

/// Returns the three fastest configurations of a space that fit. `asked`: the command whose flags define the space.
/// Throws InputError with the missing memory if none fits.
FoundConfigurations find_configurations(const Train& asked, const FitSpace& space, EstimateStep estimate) {
  if (space.families().empty()) (void)estimate(asked);  // reports the error in the command
  require<InputError>(!space.families().empty(), "--fit: no way is left to try; leave out some flags");
  FoundConfigurations ways;
  {
    report::ProgressLine line;
    auto counted = [&, count = 0](const Train& train) mutable {
      line.show(message("--fit: ", ++count, " ways estimated"));
      return estimate(train);
    };
    ways.search = plan::search(space.families(), kept_ways, [&](std::size_t family, const plan::Turned& turned) {
      return outcome_of(space.train(family, turned), counted);
    });
    for (const plan::Asked& each : ways.search.best) {
      const Train train = space.train(each.family, each.turned);
      ways.best.push_back(best_variant({.train = train, .step = estimate(train)}, space, counted));
    }
  }
  if (ways.best.empty()) refuse(ways.search, space, estimate);
  std::ranges::stable_sort(ways.best, {}, [](const Configuration& way) { return way.step.estimate.seconds; });
  return ways;
}

/// The best result of a strategy's families.
struct StrategyOutcome {
  std::string strategy;
  plan::FamilyOutcome fate;
};

bool nearer(const plan::FamilyOutcome& a, const plan::FamilyOutcome& b) {
  if (a.fate != b.fate) return a.fate < b.fate;
  if (a.fate == plan::SearchOutcome::too_large) return a.asked.outcome.missing < b.asked.outcome.missing;
  return a.asked.outcome.seconds < b.asked.outcome.seconds;
}

std::vector<StrategyOutcome> outcomes_of_strategies(const plan::SearchResult& found, const FitSpace& space) {
  std::vector<StrategyOutcome> list;
  for (const auto& [family, fate] : ranges::views::enumerate(found.fates)) {
    const std::string strategy = space.strategy(family);
    if (list.empty() || list.back().strategy != strategy)
      list.push_back({strategy, fate});
    else if (nearer(fate, list.back().fate))
      list.back().fate = fate;
  }
  std::erase_if(list, [](const StrategyOutcome& each) { return each.fate.fate == plan::SearchOutcome::fits; });
  return list;
}

/// Returns the reason why a strategy is not among the best.
std::string why(const plan::FamilyOutcome& fate, const FitSpace& space) {
  const plan::Outcome& outcome = fate.asked.outcome;
  switch (fate.fate) {
    case plan::SearchOutcome::slower:
      return message("slower: at least ", report::planned_seconds_text(outcome.seconds));
    case plan::SearchOutcome::too_large:
      return message("does not fit: ", report::bytes_text(outcome.missing), " too much with ",
                     space.flags(space.train(fate.asked.family, fate.asked.turned)));
    case plan::SearchOutcome::refused: return outcome.refused.substr(0, outcome.refused.find('\n'));
    case plan::SearchOutcome::fits: break;
  }
  return "";
}

/// Returns the flags for `train`: those of a configuration, and those of the command that it does not set.
std::string train_flags(const train::FlagSet& flags, const ConfigurationFlags& way) {
  static const std::set<std::string, std::less<>> of_plans = {"cluster", "comm", "document-length", "fit", "json",
                                                              "ranks",   "trace"};
  std::string text = command_line(way);
  for (const train::Flag& flag : flags.flags()) {
    const bool chosen = std::ranges::find(way, flag.name, &ConfigurationFlags::value_type::first) != way.end();
    if (!flag.given || chosen || of_plans.contains(flag.name)) continue;
    text += " --" + flag.name;
    const std::vector<std::string> values = flag.get();
    if (flag.kind == train::FlagKind::boolean)
      text += values == std::vector<std::string>{"true"} ? "" : "=" + values.front();
    else
      for (const std::string& value : values) text += " " + shell_word(value);
  }
  return text + (flags.is_given("data") ? "" : " --data PATH");
}

/// Returns the commands that build and start a configuration on a cluster of GPUs; empty for any other cluster.
std::string start_text(const Bound<Plan>& command, const plan::Cluster& cluster, const Train& train) {
  if (cluster.on_host()) return {};
  const std::string& name = *command->train.options.cluster;
  const char* const architecture = name == "h100" || name == "h200" ? "90a" : name == "b200" ? "100a" : "ARCHITECTURE";
  const std::string nodes =
      cluster.nodes() == 1 ? ""
                           : message("--nnodes ", cluster.nodes(), " --rdzv-backend c10d --rdzv-endpoint HOST:29500 ");
  return message(
      "the first on GPUs, the last line on each node\n  cmake --preset release -DTESSERA_CUDA_ARCHITECTURES=",
      architecture, " && cmake --build --preset release\n  torchrun ", nodes, "--nproc-per-node ",
      cluster.ranks_of_node(), " --no-python tessera train --comm nccl ",
      train_flags(command.flags, flags_of_configuration(train)), "\n");
}

std::string text_of(const FoundConfigurations& found, const FitSpace& space, const Bound<Plan>& command,
                    const plan::Cluster& cluster, const std::string& missing) {
  const Plan& plan = *command;
  const std::vector<Configuration>& ways = found.best;
  std::string text = message("searched ", space.size(), " configurations for ", *plan.train.options.cluster, " (",
                             found.search.asked, " estimated); the fastest that fit:\n");
  for (const auto& [i, way] : ranges::views::enumerate(ways))
    text += message(i + 1, "  ", space.flags(way.train), "\n   ", report::estimate_line(way.step.estimate), "\n");
  const std::vector<StrategyOutcome> others = outcomes_of_strategies(found.search, space);
  if (!others.empty()) text += "others\n";
  for (const auto& [strategy, fate] : others) text += message("   ", strategy, ": ", why(fate, space), "\n");
  if (!missing.empty()) text += message("this program cannot run them: ", missing, "\n");
  const Train& first = ways.front().train;
  return text + start_text(command, cluster, first) + "\n" +
         report::estimate_text(ways.front().step.estimate, title_of(ways.front().step, *plan.train.options.cluster));
}

std::string json_of(const FoundConfigurations& found, const FitSpace& space, const Plan& plan, bool compiled) {
  auto best = nlohmann::ordered_json::array(), others = nlohmann::ordered_json::array();
  for (const Configuration& way : found.best)
    best.push_back({{"flags", space.flags(way.train)},
                    {"compiled", compiled},
                    {"estimate", json_value_ordered(report::estimate_json(
                                     way.step.estimate, title_of(way.step, *plan.train.options.cluster)))}});
  for (const auto& [strategy, fate] : outcomes_of_strategies(found.search, space))
    others.push_back({{"flags", strategy}, {"why", why(fate, space)}});
  const nlohmann::ordered_json object = {
      {"ways", space.size()}, {"estimated", found.search.asked}, {"best", best}, {"others", others}};
  return json_text(object) + "\n";
}

}  // namespace

int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const std::string& missing, EstimateStep estimate) {
  require<InputError>(!command->train.options.trace,
                      "--trace is of one step, and --fit looks for several; leave one of them out");
  const FitSpace space(command->train, command.flags, cluster);
  const FoundConfigurations found = find_configurations(command->train, space, estimate);
  if (!train::prints_plans()) return 0;
  print_text(stdout, command->plan.json ? json_of(found, space, *command, missing.empty())
                                        : text_of(found, space, command, cluster, missing));
  return 0;
}

}  // namespace fsdp::cli
