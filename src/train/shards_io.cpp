// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include <fsdp/train/shards_io.hpp>

namespace fsdp::train {

std::int64_t first_not_finite(std::span<const float> values) {
  constexpr std::uint32_t exponent = 0x7f80'0000;
  const auto not_finite = [](float value) { return (std::bit_cast<std::uint32_t>(value) & exponent) == exponent; };
  constexpr std::size_t block = 4096;  // values; the loop over a block has no branches
  for (std::size_t begin = 0; begin < values.size(); begin += block) {
    const auto part = values.subspan(begin, std::min(block, values.size() - begin));
    if (std::ranges::count_if(part, not_finite) == 0) continue;
    return static_cast<std::int64_t>(begin) + (std::ranges::find_if(part, not_finite) - part.begin());
  }
  return -1;
}

checkpoint::ModelFiles open_agreed_model(const comm::Ranks& ranks, const std::string& folder,
                                         const checkpoint::ReadListing& read, const checkpoint::Warn& warn,
                                         const std::string& adapter) {
  checkpoint::ModelFiles files =
      on_all_ranks(ranks, "--model", [&] { return checkpoint::open_model(folder, read, warn, adapter); });
  agree_on_folder(ranks, folder);
  if (!adapter.empty()) agree_on_folder(ranks, adapter);
  return files;
}

checkpoint::OptimizerStates states_of(GroupList groups, std::string_view name,
                                      FunctionRef<std::span<const std::string_view>(const NamedParameter&)> states) {
  checkpoint::OptimizerStates all{.optimizer = std::string(name)};
  const bool adapts = std::ranges::any_of(groups, [](const GroupTensors* group) {
    return std::ranges::any_of(group->parameters(), &NamedParameter::adapter);
  });
  for (const GroupTensors* const group : groups)
    for (const NamedParameter& parameter : group->parameters()) {
      const std::span<const std::string_view> names =
          adapts && !parameter.adapter ? std::span<const std::string_view>() : states(parameter);
      all.of[parameter.name].assign(names.begin(), names.end());
    }
  return all;
}

}  // namespace fsdp::train
