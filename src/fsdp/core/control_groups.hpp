// SPDX-License-Identifier: Apache-2.0
/// @file
/// The control groups (cgroups, version 1 and 2) that limit this process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp {

struct ControlGroup {
  std::filesystem::path folder = {};  ///< folder that contains the group's files
  int version = 2;
};

/// Returns the process's control groups of a controller ("cpu", "memory") and their parents. A container may see its
/// own group as the root. `root`: the folder that contains proc and sys.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root, std::string_view controller);

/// Returns the number in a file that contains one number; nothing if the file contains "max" or does not exist.
std::optional<std::int64_t> number_in(const std::filesystem::path& path);

/// Returns the number of cores that the groups' CPU quotas amount to, rounded up, at least 1; nothing if there is no
/// quota.
std::optional<int> quota_of_cores(const std::filesystem::path& root = "/");

}  // namespace fsdp
