// SPDX-License-Identifier: Apache-2.0
/// @file
/// The inputs of --data: paths with their weights, and the files that a reader skipped, counted for the log.
#pragma once

#include <cstdint>
#include <filesystem>
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

/// Converts names to text that can be sent to another rank. Paths may contain any bytes.
std::string to_text(const DataNames& names);
DataNames names_from_text(std::string_view text);  ///< the inverse

/// Files and folder entries that were skipped, counted by reason.
class LeftOut {
 public:
  /// Counts a path. `reason`: such as "hidden". `binary`: whether it is a file that is not text.
  void add(std::string_view reason, const std::filesystem::path& path, bool binary = false, std::int64_t count = 1);
  void add(const LeftOut& other);  ///< adds the paths that another reader skipped

  bool empty() const { return reasons_.empty(); }     ///< whether no path was skipped
  std::int64_t count(std::string_view reason) const;  ///< number of paths that were skipped for this reason
  std::int64_t binary() const;                        ///< number of files that are not text
  /// Returns "left out: hidden 1 (data/.git), binary 2 (data/a.bin, ...)"; empty if no path was skipped.
  std::string text() const;

 private:
  struct Reason {
    std::string name = {};
    std::string first = {};  ///< first path with this reason
    bool binary = false;
    std::int64_t count = 0;
  };

  std::vector<Reason> reasons_;
};

}  // namespace fsdp::data
