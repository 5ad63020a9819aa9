// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/step_control.hpp>

#include <algorithm>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::optim {
namespace {

StepKind kind_of(int step_class, const Parameter& parameter) {
  const StepOptions& step = parameter.step;
  return {
      .step_class = step_class, .lr = step.lr, .clip = step.clip, .norm = static_cast<std::size_t>(step.clip_group)};
}

/// Sets, for each norm of a class for which `steps` returns true, the first kind that has the norm.
void find_makers(std::vector<std::size_t>& made_by, const StepKinds& kinds, FunctionRef<bool(int)> steps) {
  for (std::size_t i = kinds.size(); i-- > 0;)
    if (steps(kinds.list()[i].step_class)) made_by[kinds.list()[i].norm] = i;
}

std::vector<int> classes_of(const ModuleState& module) {
  std::vector<int> list;
  for (int group = 0; group < static_cast<int>(module.group_list().size()); ++group)
    list.push_back(module.step_class(group));
  return list;
}

std::size_t slot_of(std::int64_t step) { return static_cast<std::size_t>(step & 1); }

}  // namespace

StepKinds::StepKinds(const ModuleState& module)
    : StepKinds(module.step_classes(), module.group_list(), classes_of(module)) {}

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

std::size_t StepCount::next_slot() const { return slot_of(steps_); }

std::size_t StepCount::last_slot() const { return slot_of(steps_ - 1); }

std::size_t StepCount::kept_slot(std::int64_t behind) const {
  require(behind >= 0 && behind < 2 && behind < steps_, "step control: ", behind,
          " steps behind the last are not kept");
  return slot_of(steps_ - 1 - behind);
}

std::size_t StepCount::add() { return slot_of(steps_++); }

void StepCount::resume(std::int64_t steps, std::size_t taken, int classes) {
  require<InputError>(static_cast<int>(taken) == classes, "step control: numbers of steps of ", taken,
                      " classes of groups, and these orders make ", classes);
  steps_ = steps;
}

device::StepRules checked(const device::StepRules& rules) {
  require<InputError>(is_finite(rules.clip) && rules.clip >= 0, "step: the clip is ", rules.clip,
                      "; the largest norm of gradients must be finite and above 0, or 0 for no clipping");
  return rules;
}

void check(const device::StepInputs& inputs) {
  const auto is_float = [](double value) { return is_finite(static_cast<float>(value)); };  // as updates use it
  require<InputError>(is_float(inputs.lr) && is_float(inputs.loss_scale) && inputs.loss_scale > 0,
                      "step: the learning rate is ", inputs.lr, " and the loss scale ", inputs.loss_scale,
                      "; both must be finite as floats, and the scale above 0; StepInputs::lr must be given, it has no "
                      "default");
}

void check_losses(std::int64_t losses, std::int64_t micro_batches) {
  require(losses >= 1 && losses <= micro_batches, "step control: ", losses, " losses of ", micro_batches,
          " micro-batches");
}

}  // namespace fsdp::optim
