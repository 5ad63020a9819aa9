// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/shards_io.hpp>

namespace fsdp::train {

checkpoint::OptimizerStates states_of(GroupList groups, std::string_view name,
                                      FunctionRef<std::span<const std::string_view>(const Parameter&)> states) {
  checkpoint::OptimizerStates all{.optimizer = std::string(name)};
  const bool adapts = std::ranges::any_of(
      groups, [](const GroupTensors* group) { return std::ranges::any_of(group->parameters(), &Parameter::adapter); });
  for (const GroupTensors* const group : groups)
    for (const Parameter& parameter : group->parameters()) {
      const bool trained = group->facts().trainable;
      const std::span<const std::string_view> names = trained ? states(parameter) : std::span<const std::string_view>();
      all.of[parameter.name].assign(names.begin(), names.end());
      if (!trained && !adapts) all.frozen.insert(parameter.name);
    }
  return all;
}

}  // namespace fsdp::train
