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

#include <tessera/fsdp/nn/batch.hpp>

namespace fsdp::plan {
namespace {

using Amounts = std::array<std::int64_t, 4>;  ///< elements of each kind at rest, and rows

/// The properties that determine the memory of a rank that steps whole tensors.
struct Load {
  Amounts amounts{};
  std::multiset<std::pair<Role, std::vector<std::int64_t>>> stepped = {};

  friend auto operator<=>(const Load&, const Load&) = default;
};

Amounts amounts_of(GroupList groups, int rank, RowsOfRanks rows) {
  const auto [trained, resting, kept] = elements_of(groups, rank);
  return {trained, resting, kept, rows.empty() ? 0 : rows[static_cast<std::size_t>(rank)]};
}

Load load_of(GroupList groups, int rank, RowsOfRanks rows) {
  Load load{.amounts = amounts_of(groups, rank, rows)};
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

std::vector<int> most_loaded_ranks(GroupList groups, int ranks, RowsOfRanks rows) {
  std::vector<std::pair<int, Amounts>> most;
  const auto no_more = [](const Amounts& a, const Amounts& b) {
    return std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>());
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const Amounts mine = amounts_of(groups, rank, rows);
    if (std::any_of(most.begin(), most.end(), [&](const auto& other) { return no_more(mine, other.second); })) continue;
    std::erase_if(most, [&](const auto& other) { return no_more(other.second, mine); });
    most.emplace_back(rank, mine);
  }
  std::vector<int> list;
  for (const auto& [rank, amounts] : most) list.push_back(rank);
  return list;
}

std::vector<int> one_of_each_load(GroupList groups, int ranks, RowsOfRanks rows) {
  std::map<Load, int> first_of;
  for (int rank = 0; rank < ranks; ++rank) first_of.try_emplace(load_of(groups, rank, rows), rank);
  std::vector<int> list;
  for (const auto& [load, rank] : first_of) list.push_back(rank);
  return list;
}

bool loads_ranks_alike(GroupList groups, int ranks, RowsOfRanks rows) {
  for (int rank = 1; rank < ranks; ++rank)
    if (amounts_of(groups, rank, rows) != amounts_of(groups, 0, rows)) return false;
  return true;
}

namespace detail {

std::vector<std::int64_t> rows_of_ranks(const Request& request) {
  const int sharing = request.size().ranks_per_sequence;
  const std::int64_t rows = request.rows();
  std::vector<std::int64_t> list;
  for (int rank = 0; rows % sharing != 0 && rank < request.ranks; ++rank) {
    const nn::RowRange own = nn::rows_of_part(rows, rank % sharing, sharing);
    list.push_back(own.end - own.begin);
  }
  return list;
}

}  // namespace detail
}  // namespace fsdp::plan
