// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/data_names.hpp>

#include <cmath>
#include <optional>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/numbers.hpp"
#include "../../fsdp/core/paths.hpp"

namespace fsdp::data {
DataNames parse_data(std::span<const std::string> texts) {
  DataNames names;
  std::string without;  // a path without a weight
  for (const std::string& text : texts) {
    const std::size_t colon = text.rfind(':');
    if (colon == text.npos || path_exists(text)) {
      names.paths.push_back(text);
      without = text;
      continue;
    }
    const std::string_view number = std::string_view(text).substr(colon + 1);
    const std::optional<double> weight = parsed<double>(number);
    if (!weight && !path_exists(text.substr(0, colon))) {  // the text after the colon is not a weight
      names.paths.push_back(text);
      without = text;
      continue;
    }
    require<InputError>(weight && std::isfinite(*weight) && *weight > 0, "--data ", text, ": the weight '", number,
                        "' is no number above 0; write PATH:WEIGHT, such as texts:0.7");
    names.paths.push_back(text.substr(0, colon));
    names.weights.push_back(*weight);
  }
  require<InputError>(names.weights.empty() || names.weights.size() == names.paths.size(), "--data ", without,
                      " has no weight, and others have one; give all a weight, as PATH:WEIGHT, or none");
  return names;
}

std::string to_text(const DataNames& names) {
  std::vector<std::vector<std::uint8_t>> paths;  // as bytes, since JSON requires UTF-8
  for (const std::string& path : names.paths) paths.emplace_back(path.begin(), path.end());
  return nlohmann::json{{"paths", paths}, {"weights", names.weights}}.dump();
}

DataNames names_from_text(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  DataNames names{.weights = json.at("weights")};
  for (const std::vector<std::uint8_t> path : json.at("paths")) names.paths.emplace_back(path.begin(), path.end());
  return names;
}

}  // namespace fsdp::data
