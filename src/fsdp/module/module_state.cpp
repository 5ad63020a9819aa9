// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/module/module_plan.hpp>

#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/sharding/problem.hpp>

namespace fsdp {

ModuleState::ModuleState(std::span<const Unit> units, ModuleSettings settings, const StrategyCalls& strategy,
                         std::vector<sharding::Axes> axes, const ModuleRank& where)
    : ModulePlan(units, settings.passes, strategy, std::move(axes), where.ranks, where.overlaps),
      settings_(std::move(settings)),
      sequence_group_(fsdp::sequence_group(where.rank, where.ranks, settings_.passes.ranks_per_sequence)),
      counts_only_(where.counts_only) {
  if (!counts_only_)
    for (const Parameter& parameter : distinct_parameters(units)) without_values_.push_back(parameter.name);
}

ModuleState::~ModuleState() = default;

const sharding::Schedule& ModuleState::schedule(sharding::Pass pass) const { return planned(pass).schedule; }

int ModuleState::step_pieces() const { return problem().pieces; }

int ModuleState::own_micro_batches() const {
  if (step_pieces() == 0 || counts_only_) return settings_.passes.micro_batches;
  return sharding::pieces_of_rank(step_pieces(), sequence_group_.index, sequence_group_.count);
}

std::optional<int> ModuleState::step_piece(int micro_batch) const {
  if (step_pieces() > 0 && micro_batch >= own_micro_batches()) return std::nullopt;
  return sharding::piece_of(micro_batch, sequence_group_.index, sequence_group_.count);
}

bool ModuleState::steps_class(int step_class) const { return class_trained_by(step_class, stepped_order_); }

std::string ModuleState::text_of_part(std::size_t part) const {
  if (parts().size() == 1) return "all";  // the text of an only strategy is not compiled
  std::string text;
  for (const StrategyPart& one : parts())
    if (one.same_as == part)
      text += (text.empty() ? "" : ", ") + (&one == &parts().back() ? "otherwise " : message(one.pattern.text(), "=")) +
              one.name;
  return text;
}

const Parameter& ModuleState::parameter(const Reference& reference) const {
  const GroupTensors& group = *group_list_[static_cast<std::size_t>(reference.group)];
  return group.parameters()[static_cast<std::size_t>(reference.index)];
}

const Parameter& ModuleState::parameter(std::string_view name) const {
  std::vector<std::string> names;
  for (const GroupTensors* const group : group_list_)
    for (const Parameter& parameter : group->parameters()) {
      if (parameter.name == name) return parameter;
      names.push_back(parameter.name);
    }
  throw InputError(message("there is no parameter '", name, "'; ", suggestion(std::string(name), names)));
}

void ModuleState::give_values(FunctionRef<bool(const std::string&)> were_set) {
  std::erase_if(without_values_, were_set);
}

std::shared_ptr<std::byte> ModuleState::lent(device::MemoryKind kind, std::int64_t bytes) const {
  if (!settings_.lend || bytes == 0 || counts_only_) return nullptr;
  std::shared_ptr<std::byte> memory = settings_.lend(kind, bytes);
  require<InputError>(reinterpret_cast<std::uintptr_t>(memory.get()) % device::alignment == 0, "memory: the ", bytes,
                      " bytes that LendMemory gave for ", device::memory_kind_names[static_cast<std::size_t>(kind)],
                      " do not begin at a multiple of ", device::alignment, " bytes; align them");
  return memory;
}

}  // namespace fsdp
