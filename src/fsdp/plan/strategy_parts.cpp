// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/dry_run_parts.hpp>

namespace fsdp::plan::detail {

std::vector<PartPlan> sums_of_parts(const ModuleState& module, const std::vector<PartPlan>& of_groups,
                                    std::span<const comm::Record> calls) {
  const std::vector<StrategyPart>& parts = module.parts();
  std::vector<PartPlan> sums(parts.size());
  for (std::size_t i = 0; i < parts.size(); ++i) {  // equal strategies are one part
    std::string& name = sums[parts[i].same_as].name;
    name += (name.empty() ? "" : ", ") +
            (i + 1 == parts.size() ? "otherwise " : message(parts[i].pattern.text(), "=")) + parts[i].name;
  }
  for (std::size_t group = 0; group < of_groups.size(); ++group) {
    PartPlan& sum = sums[module.part_index(group)];
    const PartPlan& own = of_groups[group];
    sum.tensors += std::ssize(module.group_list()[group]->parameters());
    sum.weight_bytes += own.weight_bytes;
    sum.gradient_bytes += own.gradient_bytes;
    sum.optimizer_bytes += own.optimizer_bytes;
  }
  for (const comm::Record& call : calls) {
    const std::string_view what = call.label.what;  // as ParameterGroup labels them
    const bool gathers = what == "weights" || what == "weights across" || what == "kept weights";
    if (!gathers && what != "gradients" && what != "gradients across") continue;
    PartPlan& sum = sums[module.part_index(static_cast<std::size_t>(call.label.unit))];
    (gathers ? sum.gathered_bytes : sum.reduced_bytes) += call.bytes;
  }
  std::erase_if(sums, [](const PartPlan& sum) { return sum.tensors == 0; });
  if (sums.size() == 1) sums.clear();
  return sums;
}

}  // namespace fsdp::plan::detail
