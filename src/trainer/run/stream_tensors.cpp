// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/stream_tensors.hpp>

#include <algorithm>
#include <map>

namespace fsdp::train {

void set_parameters(report::StepShapes& shapes, GroupList groups, std::span<const std::vector<std::string>> of_unit) {
  std::map<std::string, std::size_t> first;  // for each parameter: the first unit that uses it
  for (std::size_t unit = 0; unit < of_unit.size(); ++unit)
    for (const std::string& name : of_unit[unit]) first.emplace(name, unit);
  shapes.parameters.resize(of_unit.size());
  for (const GroupTensors* const group : groups) {
    if (!group->facts().trainable) continue;
    for (const Parameter& parameter : group->parameters()) {
      const std::int64_t* const extents = parameter.shape.extents.data();
      shapes.parameters[first.at(parameter.name)].push_back(
          {.name = parameter.name, .shape = {extents, extents + parameter.shape.rank}});
    }
  }
  // The order of groups depends on flags; equal steps must give equal files.
  for (auto& list : shapes.parameters) std::ranges::sort(list, {}, &checkpoint::NamedShape::name);
  for (const std::vector<std::string>& names : of_unit) {
    std::vector<int>& uses = shapes.uses.emplace_back();
    for (const std::string& name : names) uses.push_back(static_cast<int>(first.at(name)));
  }
}

}  // namespace fsdp::train
