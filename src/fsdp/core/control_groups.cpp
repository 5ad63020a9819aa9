// SPDX-License-Identifier: Apache-2.0
#include "control_groups.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace fsdp {
namespace {

void append_with_parents(std::vector<ControlGroup>& groups, const std::filesystem::path& mount, int version,
                         std::filesystem::path group) {
  for (;; group = group.parent_path()) {
    groups.push_back({.folder = mount / group.relative_path(), .version = version});
    if (!group.has_relative_path()) return;
  }
}

/// CPU time over all cores that is allowed in each period, in microseconds.
struct Quota {
  std::int64_t time = 0, period = 0;
};

std::optional<Quota> quota_of(const ControlGroup& group) {
  if (group.version == 1) {
    const auto time = number_in(group.folder / "cpu.cfs_quota_us"),
               period = number_in(group.folder / "cpu.cfs_period_us");
    return time && period ? std::optional(Quota{*time, *period}) : std::nullopt;
  }
  std::ifstream file(group.folder / "cpu.max");  // "200000 100000", or "max 100000"
  Quota quota;
  return file >> quota.time >> quota.period ? std::optional(quota) : std::nullopt;
}

}  // namespace

std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

std::vector<ControlGroup> control_groups(const std::filesystem::path& root, std::string_view controller) {
  std::vector<ControlGroup> groups;
  const std::string wanted = "," + std::string(controller) + ",";
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  // Lines of the form "number:controllers:/path"; version 2 lists no controllers
  std::ifstream lines(root / "proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") append_with_parents(groups, mount, 2, line.substr(second + 1));
    if (controllers.find(wanted) != std::string::npos)
      append_with_parents(groups, mount / controller, 1, line.substr(second + 1));
  }
  return groups;
}

std::optional<int> quota_of_cores(const std::filesystem::path& root) {
  std::optional<int> least;
  for (const ControlGroup& group : control_groups(root, "cpu")) {
    const std::optional<Quota> quota = quota_of(group);
    if (!quota || quota->time <= 0 || quota->period <= 0) continue;  // -1: no quota
    const auto cores = static_cast<int>(std::min<std::int64_t>((quota->time - 1) / quota->period + 1, 1 << 20));
    least = std::min(least.value_or(cores), cores);
  }
  return least;
}

}  // namespace fsdp
