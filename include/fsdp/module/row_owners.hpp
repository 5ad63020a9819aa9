// SPDX-License-Identifier: Apache-2.0
/// @file
/// The owner ranks of a table's rows, and the rows that ranks request: the part of RowTable that does not depend on a
/// stack's types.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/buffer/layout.hpp>

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

}  // namespace fsdp
