// SPDX-License-Identifier: Apache-2.0
/// @file
/// Paths of data and their weights, as given to --data.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

/// The values of --data: paths, and either a weight for each or no weights.
struct DataNames {
  std::vector<std::string> paths = {};
  std::vector<double> weights = {};  ///< one weight per path, each above 0; empty if all paths form one source

  friend bool operator==(const DataNames&, const DataNames&) = default;
};

/// Parses "PATH" and "PATH:WEIGHT". If a file with the whole name exists, the colon is part of the path. Throws
/// InputError for a weight that is not a positive number, and if only some of the paths have a weight.
DataNames parse_data(std::span<const std::string> texts);

/// Converts names to text that can be sent to another rank, and back. Paths may contain any bytes.
std::string to_text(const DataNames& names);
DataNames names_from_text(std::string_view text);

}  // namespace fsdp::data
