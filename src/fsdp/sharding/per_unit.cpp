// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/per_unit.hpp>

#include <cstddef>
#include <tuple>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::detail {

std::vector<StrategyPart> parts_per_unit(std::vector<StrategyPart> units, StrategyPart rest,
                                         std::optional<bool> shards_across) {
  if (units.empty()) return {std::move(rest)};
  for (StrategyPart& part : units) {
    const auto refuse = [&](bool sets, const char* what) {
      require<InputError>(
          !sets, "sharding: the strategy '", part.name, "' of '", part.pattern.text(), "' sets ", what,
          ", which is one for the whole module; set it next to the parts (--sharding), or leave it out");
    };
    require<InputError>(part.shards_across == shards_across.value_or(part.shards_across), "sharding: the part '",
                        part.name, "' places optimizer state across groups differently than the module's strategy; ",
                        "give both the same placement");
    refuse(part.rules.prefetch_depth != 1, "how many units are gathered ahead");
    refuse(part.rules.live_bound != 0, "a bound of live elements");
    refuse(part.rules.facts.budget != 0, "a budget for gathered weights");
    refuse(part.rules.facts.pieces != 0, "the pieces of a step");
    refuse(part.offloads != rest.offloads, "where optimizer state is");
    require<InputError>(!part.own_schedule && !rest.own_schedule, "sharding: '",
                        part.own_schedule ? part.name : rest.name,
                        "' has its own schedule, which does not know the groups of other parts; take strategies with "
                        "rules()");
    if (rest.rules.facts.pieces > 0) part.rules.reduce_every_micro_batch = true;
  }
  rest.rules.facts.budget = rest.rules.facts.pieces = 0;
  rest.rules.prefetch_depth = 1;
  rest.rules.live_bound = 0;
  units.push_back(std::move(rest));
  for (std::size_t i = 0; i < units.size(); ++i) {
    const auto key = [&](const StrategyPart& part) {
      return std::tie(part.rules, part.mesh, part.shards_across, part.layout);
    };
    units[i].same_as = i;
    for (std::size_t j = i; j-- > 0;)
      if (!units[i].layout.empty() && key(units[j]) == key(units[i])) units[i].same_as = j;
  }
  return units;
}

int ranks_per_group_of(const std::vector<StrategyPart>& units, int ranks) {
  for (const StrategyPart& part : units) {
    const int own = part.mesh.ranks_per_group.value_or(0);
    require<InputError>(own == 0 || ranks == 0 || own == ranks,
                        "sharding: the parts of a strategy per unit form groups ", "of ", ranks, " ranks and, in '",
                        part.name, "', of ", own, ", and a module has one mesh; give them the same number");
    if (own != 0) ranks = own;
  }
  return ranks;
}

bool all_whole(const std::vector<StrategyPart>& units) {
  return std::ranges::all_of(units, [](const StrategyPart& part) { return part.rules.facts.whole_at_rest; });
}

std::string text_of_parts(const std::vector<StrategyPart>& units, const StrategyPart& rest) {
  std::string text;
  for (const StrategyPart& part : units) text += message(part.pattern.text(), " = ", part.name, ", ");
  return text + (units.empty() ? "" : "otherwise ") + rest.name;
}

}  // namespace fsdp::detail
