// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/shards_io.hpp>

namespace fsdp::train {

checkpoint::OptimizerStates states_of(GroupList groups, std::string_view name,
                                      FunctionRef<std::span<const optim::StateSpec>(const Parameter&)> states) {
  checkpoint::OptimizerStates all{.optimizer = std::string(name)};
  const bool adapts = std::ranges::any_of(
      groups, [](const GroupTensors* group) { return std::ranges::any_of(group->parameters(), &Parameter::adapter); });
  for (const GroupTensors* const group : groups)
    for (const Parameter& parameter : group->parameters()) {
      const bool trained = group->facts().trainable;
      auto& list = all.of[parameter.name];
      if (trained)
        for (const optim::StateSpec& state : states(parameter)) list.push_back({std::string(state.name), state.format});
      if (!trained && !adapts) all.frozen.insert(parameter.name);
    }
  return all;
}

}  // namespace fsdp::train
