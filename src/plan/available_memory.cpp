// SPDX-License-Identifier: Apache-2.0
#include <fsdp/plan/available_memory.hpp>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fsdp/core/error.hpp>

namespace fsdp::plan {
namespace {

namespace fs = std::filesystem;

/// The number in a file of one number; none of "max" or of no file.
std::optional<std::int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  std::int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

/// The number after `name` in a file of lines "name number ...".
std::optional<std::int64_t> field_of(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  std::int64_t number = 0;
  while (file >> word) {
    if (word == name && file >> number) return number;
    file.clear();
    std::getline(file, word);
  }
  return std::nullopt;
}

/// Where a version of control groups keeps what.
struct Version {
  const char* folder;
  const char* limit;
  const char* usage;
  const char* cached;  ///< of the usage, what the system would give back
};
constexpr Version version1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                              "total_inactive_file"};
constexpr Version version2 = {"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

/// What a group and all groups above it leave. A container may see its own group as the uppermost.
std::optional<std::int64_t> left_by_groups(const fs::path& root, const Version& version, fs::path group) {
  std::optional<std::int64_t> least;
  for (;; group = group.parent_path()) {
    const fs::path folder = root / version.folder / group.relative_path();
    const auto limit = number_in(folder / version.limit), usage = number_in(folder / version.usage);
    if (limit && usage) {
      const std::int64_t left = *limit - *usage + field_of(folder / "memory.stat", version.cached).value_or(0);
      least = std::min(least.value_or(left), left);
    }
    if (!group.has_relative_path()) return least;
  }
}

}  // namespace

std::int64_t available_memory(const fs::path& root) {
  std::optional<std::int64_t> least;
  const auto consider = [&least](std::optional<std::int64_t> bytes) {
    if (bytes) least = std::min(least.value_or(*bytes), *bytes);
  };
  if (const auto kibibytes = field_of(root / "proc/meminfo", "MemAvailable:")) consider(*kibibytes * 1024);
  std::ifstream groups(root / "proc/self/cgroup");  // lines "number:controllers:/path"; version 2 has no controllers
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    if (controllers == ",,") consider(left_by_groups(root, version2, line.substr(second + 1)));
    if (controllers.find(",memory,") != std::string::npos)
      consider(left_by_groups(root, version1, line.substr(second + 1)));
  }
  require<InputError>(least.has_value(), "this system does not tell how much memory is left; give --memory BYTES");
  return std::max<std::int64_t>(*least, 0);
}

}  // namespace fsdp::plan
