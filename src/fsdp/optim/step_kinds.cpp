// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/step_kinds.hpp>

#include <algorithm>

namespace fsdp::optim {
namespace {

StepKind kind_of(int step_class, const Parameter& parameter) {
  const StepOptions& step = parameter.step;
  return {
      .step_class = step_class, .lr = step.lr, .clip = step.clip, .norm = static_cast<std::size_t>(step.clip_group)};
}

/// Sets, for each norm of a class that `steps`, the first kind that has it.
void find_makers(std::vector<std::size_t>& made_by, const StepKinds& kinds, FunctionRef<bool(int)> steps) {
  for (std::size_t i = kinds.size(); i-- > 0;)
    if (steps(kinds.list()[i].step_class)) made_by[kinds.list()[i].norm] = i;
}

}  // namespace

StepKinds::StepKinds(int classes, GroupList groups, std::span<const int> class_of) {
  for (int i = 0; i < classes; ++i) list_.push_back({.step_class = i});
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (!groups[group]->facts().trainable) continue;
    for (const Parameter& parameter : groups[group]->parameters()) {
      const StepKind kind = kind_of(class_of[group], parameter);
      if (std::ranges::count(list_, kind) == 0) list_.push_back(kind);
      apart_ = std::max(apart_, static_cast<std::int64_t>(kind.norm));
    }
  }
}

std::size_t StepKinds::index_of(int step_class, const Parameter& parameter) const {
  return static_cast<std::size_t>(std::ranges::find(list_, kind_of(step_class, parameter)) - list_.begin());
}

NormMakers::NormMakers(const StepKinds& kinds) {
  made_by_[0].resize(static_cast<std::size_t>(kinds.apart()) + 1);
  find_makers(made_by_[0], kinds, [](int) { return true; });
  made_by_[1] = made_by_[0];
}

void NormMakers::end_step(const StepKinds& kinds, std::size_t slot, FunctionRef<bool(int)> steps) {
  made_by_[slot] = made_by_[1 - slot];
  find_makers(made_by_[slot], kinds, steps);
}

}  // namespace fsdp::optim
