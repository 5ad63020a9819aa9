// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/per_unit.hpp>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::detail {

std::vector<StrategyPart> parts_per_unit(std::vector<StrategyPart> parts, int pieces) {
  const auto refuse = [](const StrategyPart& part, bool sets, const char* what) {
    require<InputError>(!sets, "sharding: the part '", part.name, "' of a strategy per unit sets ", what,
                        ", which is one for the whole module; set it next to the parts");
  };
  for (StrategyPart& part : parts) {
    refuse(part, part.rules.prefetch_depth != 1, "how many units are gathered ahead");
    refuse(part, part.rules.live_bound != 0, "a bound of live elements");
    refuse(part, part.facts.budget != 0, "a budget for gathered weights");
    refuse(part, part.facts.pieces != 0, "the pieces of a step");
    if (pieces > 0) part.rules.reduce_every_micro_batch = true;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto is_same = [&](const StrategyPart& other) {
      return parts[i].facts == other.facts && parts[i].rules == other.rules && parts[i].mesh == other.mesh &&
             parts[i].shards_across == other.shards_across && !parts[i].layout.empty() &&
             parts[i].layout == other.layout;
    };
    parts[i].same_as = i;
    for (std::size_t j = i; j-- > 0;)
      if (is_same(parts[j])) parts[i].same_as = j;
  }
  return parts;
}

MeshChoice mesh_of_parts(const std::vector<StrategyPart>& parts) {
  const StrategyPart* first = nullptr;
  for (const StrategyPart& part : parts) {
    if (!part.mesh.ranks_per_group) continue;
    if (first == nullptr) first = &part;
    require<InputError>(part.mesh.ranks_per_group == first->mesh.ranks_per_group, "sharding: the parts '", first->name,
                        "' and '", part.name, "' of a strategy per unit form groups of ", *first->mesh.ranks_per_group,
                        " and of ", *part.mesh.ranks_per_group,
                        " ranks, and a module has one mesh; give them the same number");
  }
  return {.ranks_per_group = first == nullptr ? std::nullopt : first->mesh.ranks_per_group, .by_value = true};
}

bool all_whole(const std::vector<StrategyPart>& parts) {
  return std::ranges::all_of(parts, [](const StrategyPart& part) { return part.facts.whole_at_rest; });
}

std::string text_of_parts(const std::vector<StrategyPart>& parts) {
  std::string text;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i)
    text += message(parts[i].pattern.text(), " = ", parts[i].name, ", ");
  return text + (parts.size() > 1 ? "otherwise " : "") + parts.back().name;
}

}  // namespace fsdp::detail
