// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tables that are never gathered and of which only requested rows are sent, such as the embeddings of a recommender.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/module/sharded_module.hpp>

namespace fsdp {

/// The location of a row of a table: the rank, and the index of the row's first element in that rank's buffer.
struct RowPlace {
  int rank = 0;
  std::int64_t local = 0;
};

/// The ranks that hold the rows of a tensor [rows, ...].
class RowOwners {
 public:
  /// `tensor`: the table's index in the layout. Throws InputError if the layout splits a row; `name` is for the
  /// message.
  RowOwners(const buffer::Layout& layout, std::int64_t tensor, const std::string& name);
  /// Compiled into the library.
  /// @{
  RowOwners(const RowOwners&);
  RowOwners& operator=(const RowOwners&);
  ~RowOwners();
  /// @}

  /// The number of rows, and the number of elements of a row.
  /// @{
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// @}
  /// Returns the location of a row; the row must exist.
  RowPlace place_of(std::int64_t row) const;

 private:
  struct Range {
    std::int64_t first = 0;  ///< index of the first row
    RowPlace place;
  };
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<Range> ranges_;  ///< sorted by first row
};

/// The row requests of all ranks, in the order of ranks.
struct RowRequests {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> counts;  ///< number of requested rows of each rank

  /// Collective. Throws InputError on all ranks if one of them requests a row that does not exist.
  static RowRequests gathered(const comm::Ranks& ranks, std::span<const std::int64_t> mine, std::int64_t rows,
                              const std::string& name);
};

/// A parameter [R, C] of a unit that is declared with `gathered = false`. Ranks request rows and receive only these;
/// each rank moves C elements for every row that any rank requests. Gradients are added directly to the gradients at
/// rest, so that clipping, optimizer and checkpoints treat the table like any other parameter.
template <class Stack>
class RowTable {
 public:
  using Module = ShardedModule<Stack>;
  using Compute = typename Module::Compute;
  using Accumulate = typename Module::Accumulate;
  static_assert(
      Stack::Device::host_memory,
      "fsdp: RowTable reads and adds rows on the host; it needs a device whose memory the host can access (Cpu)");

  /// `module` must outlive it. Throws InputError for an unknown name, a unit that is gathered, or a layout that splits
  /// rows.
  RowTable(Module& module, std::string_view name) : RowTable(module, found(module, name)) {}

  /// Returns the number of elements of a row.
  std::int64_t columns() const { return owners_.columns(); }

  /// Writes the rows with indices `ids` [n] of the table to `rows` [n, C]. Collective; n may differ between ranks.
  /// Throws InputError on all ranks if a row does not exist.
  void lookup(std::span<const std::int64_t> ids, Tensor<Compute> rows) {
    require_rows(ids, rows.rows(), rows.columns());
    auto& communicator = module_->communicator();
    const RowRequests asked = RowRequests::gathered(communicator, ids, owners_.rows(), name_);
    if (whole_here()) return copy_own(ids, rows);
    const std::vector<std::int64_t> counts = counts_by_owner(asked);
    sent_.resize(static_cast<std::size_t>(counts[static_cast<std::size_t>(communicator.rank())]));
    received_.resize(asked.ids.size() * static_cast<std::size_t>(columns()));
    auto to = sent_.begin();
    for (const std::int64_t id : asked.ids)
      if (const RowPlace place = owners_.place_of(id); place.rank == communicator.rank())
        to = std::copy_n(group_->model().data() + place.local, columns(), to);
    const std::array segments{
        comm::Segment<Compute>{.local = sent_.data(), .full = received_.data(), .counts = counts}};
    comm::all_gather(communicator, std::span<const comm::Segment<Compute>>(segments), {"table rows"}).wait();
    pick(asked, counts, rows);
  }

  /// Adds `rows` [n, C] to the gradients of the rows with indices `ids` [n], in the order of ranks. Call it in a
  /// training pass, any number of times; a step begins with zero gradients. Collective, like `lookup`.
  void add_gradient(std::span<const std::int64_t> ids, Tensor<const Accumulate> rows) {
    require_rows(ids, rows.rows(), rows.columns());
    auto& communicator = module_->communicator();
    const RowRequests asked = RowRequests::gathered(communicator, ids, owners_.rows(), name_);
    std::vector<std::int64_t> counts;
    for (const std::int64_t count : asked.counts) counts.push_back(count * columns());
    gradients_.resize(asked.ids.size() * static_cast<std::size_t>(columns()));
    own_gradients_.assign(rows.data(), rows.data() + rows.numel());
    const std::array segments{
        comm::Segment<Accumulate>{.local = own_gradients_.data(), .full = gradients_.data(), .counts = counts}};
    comm::all_gather(communicator, std::span<const comm::Segment<Accumulate>>(segments), {"table gradients"}).wait();
    const Accumulate* from = gradients_.data();
    for (const std::int64_t id : asked.ids) {
      const RowPlace place = owners_.place_of(id);
      if (whole_here() || place.rank == communicator.rank()) {
        Accumulate* const to = group_->summed_gradient().data() + place.local;
        for (std::int64_t column = 0; column < columns(); ++column) to[column] += from[column];
      }
      from += columns();
    }
  }

 private:
  using Group = typename Module::Group;
  struct Found {
    Group* group = nullptr;
    std::int64_t tensor = 0;
  };

  RowTable(Module& module, const Found& found)
      : module_(&module),
        group_(found.group),
        name_(found.group->parameters()[static_cast<std::size_t>(found.tensor)].name),
        owners_(found.group->layout(), found.tensor, name_) {}

  static Found found(Module& module, std::string_view name) {
    const Parameter* const parameter = &module.parameter(name);
    Found found;
    const auto look = [&]<class G>(G& group) {
      for (std::size_t i = 0; i < group.parameters().size(); ++i) {
        if (&group.parameters()[i] != parameter) continue;
        require<InputError>(!group.facts().gathered, "row table: '", name,
                            "' is of a unit that is gathered; declare the unit with gathered = false");
        if constexpr (std::is_same_v<G, Group>) found = {.group = &group, .tensor = static_cast<std::int64_t>(i)};
      }
    };
    for (auto& any : module.groups()) with_group(any, look);
    require<InputError>(found.group != nullptr, "row table: '", name,
                        "' has another precision or placement of optimizer state than most tensors, and rows are sent "
                        "in one; leave it out of the patterns");
    return found;
  }

  /// Whether this rank stores all rows: there is only one rank, or the table is replicated.
  bool whole_here() const { return group_->in_place(); }
  void require_rows(std::span<const std::int64_t> ids, std::int64_t rows, std::int64_t columns) const {
    require<InputError>(rows == std::ssize(ids) && (rows == 0 || columns == owners_.columns()),
                        "row table: ", ids.size(), " ids of '", name_, "' need a tensor [", ids.size(), ", ",
                        owners_.columns(), "], not [", rows, ", ", columns, "]");
  }
  void copy_own(std::span<const std::int64_t> ids, Tensor<Compute> rows) const {
    for (std::int64_t i = 0; i < std::ssize(ids); ++i)
      std::copy_n(group_->model().data() + owners_.place_of(ids[static_cast<std::size_t>(i)]).local, columns(),
                  rows.row(i));
  }
  /// Returns the number of elements that each rank sends: all of its rows that any rank requests.
  std::vector<std::int64_t> counts_by_owner(const RowRequests& asked) const {
    std::vector<std::int64_t> counts(asked.counts.size());
    for (const std::int64_t id : asked.ids) counts[static_cast<std::size_t>(owners_.place_of(id).rank)] += columns();
    return counts;
  }
  /// Copies the rows that this rank requested from all received rows, which are ordered by owner, then by request.
  void pick(const RowRequests& asked, const std::vector<std::int64_t>& counts, Tensor<Compute> rows) const {
    std::vector<std::int64_t> next(counts.size());
    for (std::size_t rank = 1; rank < next.size(); ++rank) next[rank] = next[rank - 1] + counts[rank - 1];
    const auto mine = static_cast<std::size_t>(module_->communicator().rank());
    std::size_t request = 0;
    for (std::size_t rank = 0; rank < asked.counts.size(); ++rank)
      for (std::int64_t i = 0; i < asked.counts[rank]; ++i, ++request) {
        std::int64_t& at = next[static_cast<std::size_t>(owners_.place_of(asked.ids[request]).rank)];
        if (rank == mine) std::copy_n(received_.data() + at, columns(), rows.row(i));
        at += columns();
      }
  }

  Module* module_;
  Group* group_;
  std::string name_;
  RowOwners owners_;
  std::vector<Compute> sent_, received_;
  std::vector<Accumulate> gradients_, own_gradients_;
};

}  // namespace fsdp
