// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/ranks.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace fsdp::plan {
namespace {

using Elements = std::array<std::int64_t, 3>;

/// What determines the memory of a rank that steps whole tensors.
struct Load {
  Elements elements{};
  std::multiset<std::pair<Role, std::vector<std::int64_t>>> stepped = {};

  friend auto operator<=>(const Load&, const Load&) = default;
};

Load load_of(GroupList groups, int rank) {
  Load load{.elements = elements_of(groups, rank)};
  for (const GroupTensors* const group : groups) {
    if (!group->facts().trainable) continue;
    const int shards = static_cast<int>(group->layout().local_sizes.size());
    for (const buffer::TensorRange& range : group->layout().ranges(rank % shards)) {
      const Parameter& parameter = group->parameters()[static_cast<std::size_t>(range.tensor)];
      const auto extents = parameter.shape.extents.begin();
      load.stepped.emplace(parameter.role, std::vector<std::int64_t>(extents, extents + parameter.shape.rank));
    }
  }
  return load;
}

}  // namespace

std::vector<int> most_loaded_ranks(GroupList groups, int ranks) {
  std::vector<std::pair<int, Elements>> most;
  const auto no_more = [](const Elements& a, const Elements& b) {
    return std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>());
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const Elements mine = elements_of(groups, rank);
    if (std::any_of(most.begin(), most.end(), [&](const auto& other) { return no_more(mine, other.second); })) continue;
    std::erase_if(most, [&](const auto& other) { return no_more(other.second, mine); });
    most.emplace_back(rank, mine);
  }
  std::vector<int> list;
  for (const auto& [rank, elements] : most) list.push_back(rank);
  return list;
}

std::vector<int> one_of_each_load(GroupList groups, int ranks) {
  std::map<Load, int> first_of;
  for (int rank = 0; rank < ranks; ++rank) first_of.try_emplace(load_of(groups, rank), rank);
  std::vector<int> list;
  for (const auto& [load, rank] : first_of) list.push_back(rank);
  return list;
}

bool loads_ranks_alike(GroupList groups, int ranks) {
  for (int rank = 1; rank < ranks; ++rank)
    if (elements_of(groups, rank) != elements_of(groups, 0)) return false;
  return true;
}

}  // namespace fsdp::plan
