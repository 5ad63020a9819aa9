// SPDX-License-Identifier: Apache-2.0
/// @file
/// Texts that consist of parts with a separator between them, such as "hybrid:2:zero3".
#pragma once

#include <string_view>
#include <vector>

namespace fsdp {

/// Returns the parts of a text between separators; one more than the number of separators.
inline std::vector<std::string_view> split_at(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;; rest.remove_prefix(parts.back().size() + 1)) {
    parts.push_back(rest.substr(0, rest.find(mark)));
    if (parts.back().size() == rest.size()) return parts;
  }
}

}  // namespace fsdp
