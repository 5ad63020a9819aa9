// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/verification/step_digest.hpp>

#include <iterator>
#include <utility>

#include <tessera/fsdp/module/module_plan.hpp>
#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

FirstUnits::FirstUnits(const ModuleState& module) {
  for (int unit = 0; unit < static_cast<int>(module.names().units.size()); ++unit)
    for (const Reference& reference : module.references(unit))
      if (reference.present()) units_.try_emplace(module.parameter(reference).name, unit);
}

FirstUnits::~FirstUnits() = default;

int FirstUnits::of(const std::string& parameter) const { return units_.at(parameter); }

DigestedStep digested_step(const ModuleState& module, const FirstUnits& first_units) {
  DigestedStep step{.units = module.names().units,
                    .first_backward = module.first_backward(),
                    .groups = module.sequence_group().count,
                    .group_size = module.sequence_group().size,
                    .micro_batches = module.settings().passes.micro_batches,
                    .pieces = module.step_pieces(),
                    .changes = std::vector<bool>(module.names().units.size())};
  for (const GroupTensors* const group : module.group_list())
    if (group->facts().trainable)
      for (const Parameter& parameter : group->parameters())
        step.changes[static_cast<std::size_t>(first_units.of(parameter.name))] = true;
  return step;
}

DigestTable::DigestTable(std::vector<std::uint64_t> all, int ranks)
    : all_(std::move(all)), digests_(all_.size() / static_cast<std::size_t>(ranks)) {}

std::span<const std::uint64_t> DigestTable::of(int rank) const {
  return std::span(all_).subspan(static_cast<std::size_t>(rank) * digests_, digests_);
}

std::vector<StepDigest> listed(const DigestedStep& step, const DigestTable& all) {
  const std::int64_t units = std::ssize(step.units), streams = 2 * units * step.micro_batches;
  const auto sum_of = [&](int first_rank, int ranks, std::int64_t at) {
    std::uint64_t sum = 0;
    for (int rank = first_rank; rank < first_rank + ranks; ++rank) sum += all.of(rank)[static_cast<std::size_t>(at)];
    return sum;
  };
  const auto of_piece = [&](int piece, std::int64_t at) {
    return sum_of(piece % step.groups * step.group_size, step.group_size, piece / step.groups * units * 2 + at);
  };
  const auto name = [&](std::int64_t unit) { return step.units[static_cast<std::size_t>(unit)]; };
  std::vector<StepDigest> list;
  const int pieces = step.pieces > 0 ? step.pieces : step.groups * step.micro_batches;
  for (int piece = 0; piece < pieces; ++piece) {
    for (std::int64_t unit = 0; unit + 1 < units; ++unit)
      list.push_back({StepDigest::Kind::forward, piece, name(unit), of_piece(piece, 2 * unit)});
    for (std::int64_t unit = units - 1; unit > step.first_backward; --unit)
      list.push_back({StepDigest::Kind::backward, piece, name(unit), of_piece(piece, 2 * unit + 1)});
  }
  for (const auto kind : {StepDigest::Kind::gradient, StepDigest::Kind::weights})
    for (std::int64_t unit = 0; unit < units; ++unit) {
      if (!step.changes[static_cast<std::size_t>(unit)]) continue;
      const std::int64_t at = streams + (kind == StepDigest::Kind::weights ? units : 0) + unit;
      list.push_back({kind, -1, name(unit), sum_of(0, step.groups * step.group_size, at)});
    }
  return list;
}

}  // namespace fsdp
