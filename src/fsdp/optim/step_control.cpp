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

std::size_t slot_of(std::int64_t step) { return static_cast<std::size_t>(step & 1); }

}  // namespace

StepKinds::StepKinds(const ModuleState& module) : module_(&module) {
  for (int i = 0; i < module.step_classes(); ++i) list_.push_back({.step_class = i});
  for (int group = 0; const GroupTensors* const each : module.group_list()) {
    const int step_class = module.step_class(group++);
    if (!each->facts().trainable) continue;
    for (const Parameter& parameter : each->parameters()) {
      const StepKind kind = kind_of(step_class, parameter);
      if (std::ranges::count(list_, kind) == 0) list_.push_back(kind);
      apart_ = std::max(apart_, static_cast<std::int64_t>(kind.norm));
    }
  }
  std::vector<std::size_t>& made_by = made_by_[0];
  made_by.resize(static_cast<std::size_t>(apart_) + 1);
  for (std::size_t i = list_.size(); i-- > 0;) made_by[list_[i].norm] = i;  // the first kind that has the norm
  made_by_[1] = made_by;
}

std::size_t StepKinds::index_of(int step_class, const Parameter& parameter) const {
  return static_cast<std::size_t>(std::ranges::find(list_, kind_of(step_class, parameter)) - list_.begin());
}

std::size_t StepKinds::next_slot() const { return slot_of(steps_); }

std::size_t StepKinds::kept_slot(std::int64_t behind) const {
  require(behind >= 0 && behind < 2 && behind < steps_, "step control: ", behind,
          " steps behind the last are not kept");
  return slot_of(steps_ - 1 - behind);
}

std::size_t StepKinds::add() {
  const std::size_t slot = slot_of(steps_++);
  made_by_[slot] = made_by_[1 - slot];
  for (std::size_t i = list_.size(); i-- > 0;)
    if (module_->steps_class(list_[i].step_class)) made_by_[slot][list_[i].norm] = i;
  return slot;
}

std::size_t StepKinds::resume(std::int64_t steps, std::size_t taken) {
  require<InputError>(static_cast<int>(taken) == module_->step_classes(), "step control: numbers of steps of ", taken,
                      " classes of groups, and these orders make ", module_->step_classes());
  steps_ = steps;
  return slot_of(steps_ - 1);
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
