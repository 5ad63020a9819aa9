// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files of JSON lines, such as metrics.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/fsdp/core/json/strict_json.hpp"

namespace fsdp::test {

/// The values of a file's lines. By the library's parser, which is compiled once.
inline std::vector<nlohmann::json> json_lines(const std::filesystem::path& path) {
  std::vector<nlohmann::json> list;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) list.push_back(parse_strict(line, path.string()));
  return list;
}

}  // namespace fsdp::test
