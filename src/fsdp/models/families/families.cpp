// SPDX-License-Identifier: Apache-2.0
#include "families.hpp"

#include <algorithm>
#include <array>

namespace fsdp {
namespace {

constexpr std::array all_families = {&llama_family, &mistral_family, &qwen2_family, &qwen3_family};

}  // namespace

std::span<const Family* const> families() { return all_families; }

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family* const family : all_families) names.emplace_back(family->name);
  return names;
}

std::string families_text(std::string_view conjunction, bool (*matches)(const Family&)) {
  std::string text, last;
  for (const Family* const family : all_families) {
    if (matches != nullptr && !matches(*family)) continue;
    if (!last.empty()) text += (text.empty() ? "" : ", ") + last;
    last = family->name;
  }
  return text.empty() ? last : text + " " + std::string(conjunction) + " " + last;
}

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(all_families, name, [](const Family* family) { return family->name; });
  return found == all_families.end() ? nullptr : *found;
}

}  // namespace fsdp
