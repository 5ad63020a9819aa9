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

}  // namespace fsdp::optim
