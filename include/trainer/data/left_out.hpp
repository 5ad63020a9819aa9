// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files that a reader of data skipped, counted for the log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

/// Files and folder entries that were skipped, counted by reason.
class LeftOut {
 public:
  /// Counts a path. `reason`: such as "hidden".
  void add(std::string_view reason, const std::filesystem::path& path) { add(reason, path.string(), false, 1); }
  /// Counts a file that is not text. `reason`: such as "binary".
  void add_binary(std::string_view reason, const std::filesystem::path& path) { add(reason, path.string(), true, 1); }
  /// Adds the paths that another reader skipped.
  void add(const LeftOut& other);
  /// Adds files that were not text when a folder was tokenized.
  void add_earlier(std::int64_t files);

  /// Returns whether no path was skipped.
  bool empty() const { return reasons_.empty(); }
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
  void add(std::string_view reason, const std::string& path, bool binary, std::int64_t count);

  std::vector<Reason> reasons_;
};

}  // namespace fsdp::data
