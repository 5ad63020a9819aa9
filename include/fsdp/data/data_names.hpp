// SPDX-License-Identifier: Apache-2.0
/// @file
/// Paths of data and their weights, as --data has them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

/// What --data names: paths, each with its share of the windows, or none with one.
struct DataNames {
  std::vector<std::string> paths = {};
  std::vector<double> weights = {};  ///< as many, each above 0; empty: the paths are one source

  friend bool operator==(const DataNames&, const DataNames&) = default;
};

/// Reads "PATH" and "PATH:WEIGHT". A path that is there with its colon is a path. Throws InputError for a weight that
/// is no positive number, and where some paths have one and others none.
DataNames parse_data(std::span<const std::string> texts);

/// Names as a text that another rank reads again, whatever the paths hold.
std::string to_text(const DataNames& names);
DataNames names_from_text(std::string_view text);

}  // namespace fsdp::data
