// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which rank holds which row of a table, and which rows the ranks ask for: the part of RowTable that does not depend
/// on a stack's types.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/buffer/layout.hpp>

namespace fsdp {

/// Where a row of a table is: the rank, and the row's first element in that rank's buffer.
struct RowPlace {
  int rank = 0;
  std::int64_t local = 0;
};

/// The ranks that hold the rows of a tensor [rows, ...].
class RowOwners {
 public:
  /// `tensor`: its index in the layout. Throws InputError if the layout cuts a row; `name` is for the message.
  RowOwners(const buffer::Layout& layout, std::int64_t tensor, const std::string& name);
  /// Copies are compiled into the library.
  /// @{
  RowOwners(const RowOwners&);
  RowOwners& operator=(const RowOwners&);
  ~RowOwners();
  /// @}

  /// Number of rows, and elements of one.
  /// @{
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  /// @}
  /// Returns where a row is; the row must exist.
  RowPlace place_of(std::int64_t row) const;

 private:
  struct Range {
    std::int64_t first = 0;  ///< row
    RowPlace place;
  };
  std::int64_t rows_ = 0, columns_ = 0;
  std::vector<Range> ranges_;  ///< by their first row
};

/// The rows that all ranks ask for, in the order of ranks.
struct RowRequests {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> counts;  ///< by rank

  /// Collective. Throws InputError on all ranks if one of them asks for a row that does not exist.
  static RowRequests gathered(const comm::Ranks& ranks, std::span<const std::int64_t> mine, std::int64_t rows,
                              const std::string& name);
};

}  // namespace fsdp
