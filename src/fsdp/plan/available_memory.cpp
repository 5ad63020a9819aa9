// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/plan.hpp>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

#include "../core/control_groups.hpp"

namespace fsdp::plan {
namespace {

namespace fs = std::filesystem;

/// Returns the number after `name` in a file of lines "name number ...".
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

/// Returns the bytes that a control group has left; page cache that the system can reclaim counts as free.
std::optional<std::int64_t> available_in(const ControlGroup& group) {
  const bool first = group.version == 1;
  const auto limit = number_in(group.folder / (first ? "memory.limit_in_bytes" : "memory.max"));
  const auto usage = number_in(group.folder / (first ? "memory.usage_in_bytes" : "memory.current"));
  if (!limit || !usage) return std::nullopt;
  const char* const cached = first ? "total_inactive_file" : "inactive_file";
  return *limit - *usage + field_of(group.folder / "memory.stat", cached).value_or(0);
}

}  // namespace

std::int64_t available_memory(const fs::path& root) {
  std::optional<std::int64_t> least;
  const auto consider = [&least](std::optional<std::int64_t> bytes) {
    if (bytes) least = std::min(least.value_or(*bytes), *bytes);
  };
  if (const auto kibibytes = field_of(root / "proc/meminfo", "MemAvailable:")) consider(*kibibytes * 1024);
  for (const ControlGroup& group : control_groups(root, "memory")) consider(available_in(group));
  require<InputError>(least.has_value(), "this system does not tell how much memory is left; give --memory BYTES");
  return std::max<std::int64_t>(*least, 0);
}

}  // namespace fsdp::plan
