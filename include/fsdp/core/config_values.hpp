// SPDX-License-Identifier: Apache-2.0
/// @file
/// The values of a model's config by name, for code that does not know the model: checkpoints, metrics, terminal
/// output. The constants of an optimizer are read in the same way.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <tessera/fsdp/core/named_values.hpp>

namespace fsdp {

/// A value of a model's config with its name in flags and metrics.
struct ConfigValue {
  std::string name = {};
  std::variant<std::int64_t, double, bool, std::string> value = {};

  friend bool operator==(const ConfigValue&, const ConfigValue&) = default;
};

using ConfigValues = std::vector<ConfigValue>;

/// Returns a value as text: "96", "1e-05", "true".
std::string text_of(const ConfigValue& value);

/// Returns copies of all values, in the same order.
ConfigValues copies_of(const NamedValues& values);

/// Returns the values that `visit` of a config lists, in its order.
template <class Config>
ConfigValues values_of(Config config) {
  return copies_of(config);
}

}  // namespace fsdp
