// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values of a model's config by name, for code that does not know the model: checkpoints, metrics, the console.
/// The constants of an optimizer are visited alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace fsdp {

/// A value of a model's config, by the name that flags and metrics give it.
struct ConfigValue {
  std::string name = {};
  std::variant<std::int64_t, double, bool, std::string> value = {};

  friend bool operator==(const ConfigValue&, const ConfigValue&) = default;
};

using ConfigValues = std::vector<ConfigValue>;

/// A value as people write it: "96", "1e-05", "true".
std::string text_of(const ConfigValue& value);

/// What a config's `visit` shows, in its order. A visitor takes (name, value, help).
template <class Config>
ConfigValues values_of(const Config& config) {
  ConfigValues values;
  Config::visit(config, [&]<class T>(std::string_view name, const T& value, std::string_view) {
    static_assert(
        std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> || std::is_same_v<T, bool> ||
            std::is_same_v<T, std::string>,
        "fsdp: a model's config visits a value that is no std::int64_t, double, bool or std::string; flags and "
        "metrics know these four, so change its type or leave it out of visit");
    values.push_back({std::string(name), value});
  });
  return values;
}

}  // namespace fsdp
