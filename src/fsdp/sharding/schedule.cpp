// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/sharding/schedule.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp::sharding {

std::string subject_of(const Task& task, const Names& names) {
  const bool of_unit = works_on_unit(task.action);
  const std::vector<std::string>& list = of_unit ? names.units : names.groups;
  const auto index = static_cast<std::size_t>(task.index);
  const std::string name = index < list.size() ? list[index] : message(of_unit ? "unit " : "group ", task.index);
  if (!of_unit || copies_input(task.action) || index >= names.stages.size()) return name;
  const std::vector<Stage> stages = stages_of(names.stages[index]);
  if (stages.empty()) return name;
  const Stage& stage = stages[static_cast<std::size_t>(task.stage)];
  return message(name, ' ', name_of(stage.step), ' ', stage.part);
}

std::string text_of(const Task& task, const Names& names) {
  return message(name_of(task.action), ' ', subject_of(task, names));
}

}  // namespace fsdp::sharding
