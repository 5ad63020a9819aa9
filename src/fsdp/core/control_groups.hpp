// SPDX-License-Identifier: Apache-2.0
/// @file
/// The control groups (cgroups) that limit this process, of version 1 and 2.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

namespace fsdp {

struct ControlGroup {
  std::filesystem::path folder = {};  ///< where its files are
  int version = 2;
};

/// The process's groups of a controller ("cpu", "memory") and those above them. A container may see its own group as
/// the uppermost. `root`: where proc and sys are.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root, std::string_view controller);

/// The number in a file of one number; none of "max" or of no file.
std::optional<std::int64_t> number_in(const std::filesystem::path& path);

/// Cores that the groups' quotas of time make, rounded up, at least 1; nothing where there is no quota.
std::optional<int> quota_of_cores(const std::filesystem::path& root = "/");

}  // namespace fsdp
