// SPDX-License-Identifier: Apache-2.0
#include "fit.hpp"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/estimate.hpp>
#include <tessera/trainer/report/report.hpp>

#include "way_flags.hpp"

namespace fsdp::cli {
namespace {

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
    case plan::Fate::slower: return message("slower: at least ", report::planned_seconds_text(outcome.seconds));
    case plan::Fate::too_large:
      return message("does not fit: ", report::bytes_text(outcome.missing), " too much with ",
                     space.flags(space.train(fate.asked.family, fate.asked.turned)));
    case plan::Fate::refused: return first_line(outcome.refused);
    case plan::Fate::fits: break;
  }
  return "";
}

/// Returns a value as a shell reads it.
std::string shell_word(const std::string& text) {
  if (!text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,%+@") ==
          std::string::npos)
    return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

/// Returns the flags of a command that `train` takes and that a way leaves as they are, and the way's.
std::string train_flags(const train::FlagSet& flags, const WayFlags& way) {
  static const std::set<std::string, std::less<>> of_plans = {"cluster", "comm", "document-length", "fit", "json",
                                                              "ranks",   "trace"};
  std::string text = command_line(way);
  for (const train::Flag& flag : flags.flags()) {
    const bool chosen = std::ranges::find(way, flag.name, &WayFlag::name) != way.end();
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

/// Returns how a way is built for and started on a cluster of GPUs; empty for any other.
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
      train_flags(command.flags, flags_of_way(train)), "\n");
}

std::string text_of(const FoundWays& found, const FitSpace& space, const Bound<Plan>& command,
                    const plan::Cluster& cluster, const std::string& missing) {
  const Plan& plan = *command;
  const std::vector<Way>& ways = found.best;
  std::string text = message("searched ", space.size(), " configurations for ", *plan.train.options.cluster, " (",
                             found.search.asked, " estimated); the fastest that fit:\n");
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const plan::Estimate& step = ways[i].step.estimate;
    text += message(i + 1, "  ", space.flags(ways[i].train), "\n   ", report::estimate_line(step), "\n");
  }
  const std::vector<StrategyFate> others = fates_of_strategies(found.search, space);
  if (!others.empty()) text += "others\n";
  for (const auto& [strategy, fate] : others) text += message("   ", strategy, ": ", why(fate, space), "\n");
  if (!missing.empty()) text += message("this program cannot run them: ", missing, "\n");
  const Train& first = ways.front().train;
  return text + start_text(command, cluster, first) + "\n" +
         report::estimate_text(ways.front().step.estimate, title_of(ways.front().step, *plan.train.options.cluster));
}

std::string json_of(const FoundWays& found, const FitSpace& space, const Plan& plan, bool compiled) {
  auto best = nlohmann::ordered_json::array(), others = nlohmann::ordered_json::array();
  for (const Way& way : found.best)
    best.push_back({{"flags", space.flags(way.train)},
                    {"compiled", compiled},
                    {"estimate", nlohmann::ordered_json::parse(report::estimate_json(
                                     way.step.estimate, title_of(way.step, *plan.train.options.cluster)))}});
  for (const auto& [strategy, fate] : fates_of_strategies(found.search, space))
    others.push_back({{"flags", strategy}, {"why", why(fate, space)}});
  const nlohmann::ordered_json object = {
      {"ways", space.size()}, {"estimated", found.search.asked}, {"best", best}, {"others", others}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const std::string& missing, EstimateStep estimate) {
  require<InputError>(!command->train.options.trace,
                      "--trace is of one step, and --fit looks for several; leave one of them out");
  const FitSpace space(command->train, command.flags, cluster);
  const FoundWays found = find_ways(command->train, space, estimate);
  if (!train::tells_of_plans()) return 0;
  print_text(stdout, command->plan.json ? json_of(found, space, *command, missing.empty())
                                        : text_of(found, space, command, cluster, missing));
  return 0;
}

}  // namespace fsdp::cli
