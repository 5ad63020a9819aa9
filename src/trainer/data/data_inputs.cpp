// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/data_inputs.hpp>

#include <algorithm>
#include <cmath>
#include <optional>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/strings.hpp"

namespace fsdp::data {
DataNames parse_data(std::span<const std::string> texts) {
  DataNames names;
  std::string without;  // a path without a weight
  for (const std::string& text : texts) {
    const std::size_t colon = text.rfind(':');
    const std::string_view number = std::string_view(text).substr(colon + 1);
    const std::optional<double> weight = parsed<double>(number);
    // The text after a colon may be part of the path
    if (colon == text.npos || path_exists(text) || (!weight && !path_exists(text.substr(0, colon)))) {
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
  return object_text({{"paths", paths}, {"weights", names.weights}});
}

DataNames names_from_text(std::string_view text) {
  const nlohmann::json json = json_value(text);
  DataNames names{.weights = json.at("weights")};
  for (const std::vector<std::uint8_t> path : json.at("paths")) names.paths.emplace_back(path.begin(), path.end());
  return names;
}

void LeftOut::add(std::string_view reason, const std::filesystem::path& path, bool binary, std::int64_t count) {
  auto found = std::ranges::find(reasons_, reason, &Reason::name);
  if (found == reasons_.end())
    found = reasons_.insert(found, {.name = std::string(reason), .first = path.string(), .binary = binary});
  found->count += count;
}

void LeftOut::add(const LeftOut& other) {
  for (const Reason& reason : other.reasons_) add(reason.name, reason.first, reason.binary, reason.count);
}

std::int64_t LeftOut::count(std::string_view reason) const {
  const auto found = std::ranges::find(reasons_, reason, &Reason::name);
  return found == reasons_.end() ? 0 : found->count;
}

std::int64_t LeftOut::binary() const {
  std::int64_t count = 0;
  for (const Reason& reason : reasons_) count += reason.binary ? reason.count : 0;
  return count;
}

std::string LeftOut::text() const {
  std::string text;
  for (const Reason& reason : reasons_) {
    text += message(text.empty() ? "left out: " : ", ", reason.name, " ", reason.count);
    if (!reason.first.empty()) text += message(" (", reason.first, reason.count > 1 ? ", ..." : "", ")");
  }
  return text;
}

}  // namespace fsdp::data
