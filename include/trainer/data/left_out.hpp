// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a reader of data left out, for the log.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp::data {

/// Files and names that were not read, counted by reason.
class LeftOut {
 public:
  /// Counts a path. `reason`: such as "hidden".
  void add(std::string_view reason, const std::filesystem::path& path) { add(reason, path.string(), false, 1); }
  /// Counts a file that is not text. `reason`: such as "binary".
  void add_binary(std::string_view reason, const std::filesystem::path& path) { add(reason, path.string(), true, 1); }
  /// Adds what another reader left out.
  void add(const LeftOut& other);
  /// Adds files that were not text when tokens were made of a folder.
  void add_earlier(std::int64_t files);

  /// Returns whether nothing was left out.
  bool empty() const { return reasons_.empty(); }
  std::int64_t count(std::string_view reason) const;  ///< of paths that were left out for it
  std::int64_t binary() const;                        ///< number of files that are not text
  /// "left out: hidden 1 (data/.git), binary 2 (data/a.bin, ...)"; empty if nothing was left out.
  std::string text() const;

 private:
  struct Reason {
    std::string name = {};
    std::string first = {};  ///< its first path
    bool binary = false;
    std::int64_t count = 0;
  };
  void add(std::string_view reason, const std::string& path, bool binary, std::int64_t count);

  std::vector<Reason> reasons_;
};

}  // namespace fsdp::data
