// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading the keys of one JSON object.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>

namespace fsdp {

/// Typed look-ups, whose errors name the key and what it holds; `null` counts as absent.
class Keys {
 public:
  Keys(const nlohmann::json& object, const std::string& source) : object_(object), source_(source) {}

  /// Whether the key is present, even as null.
  bool given(const char* key) const { return object_.contains(key); }
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  std::string text(const char* key) const {
    require_present(key);
    require<InputError>(object_.at(key).is_string(), source_, ": \"", key, "\" is ", dump(key), "; it must be a text");
    return object_.at(key).get<std::string>();
  }
  std::string text(const char* key, const std::string& otherwise) const { return has(key) ? text(key) : otherwise; }

  std::int64_t integer(const char* key) const {
    require_present(key);
    const nlohmann::json& value = object_.at(key);
    require<InputError>(value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX, source_, ": \"", key,
                        "\" is ", value.dump(), "; it must be a whole number that is not negative");
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const char* key, std::int64_t otherwise) const { return has(key) ? integer(key) : otherwise; }

  double number(const char* key, double otherwise) const { return has(key) ? number(key) : otherwise; }
  double number(const char* key) const {
    require_present(key);
    require<InputError>(object_.at(key).is_number(), source_, ": \"", key, "\" is ", dump(key),
                        "; it must be a number");
    return object_.at(key).get<double>();
  }

  bool boolean(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    require<InputError>(object_.at(key).is_boolean(), source_, ": \"", key, "\" is ", dump(key),
                        "; it must be true or false");
    return object_.at(key).get<bool>();
  }

  /// Throws for every value but `only`; with `optional` the key may be absent.
  void expect(const char* key, const nlohmann::json& only, bool optional = true) const {
    if (optional && !has(key)) return;
    require<InputError>(has(key), source_, ": the key \"", key, "\" is missing; this must be ", only.dump());
    require<InputError>(object_.at(key) == only, source_, ": \"", key, "\" is ", dump(key), "; only ", only.dump(),
                        " is supported");
  }

  std::string dump(const char* key) const {
    return object_.at(key).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 80);
  }
  const nlohmann::json& at(const char* key) const { return object_.at(key); }

 private:
  void require_present(const char* key) const {
    require<InputError>(has(key), source_, ": the key \"", key, "\" is missing");
  }

  const nlohmann::json& object_;
  const std::string& source_;
};

}  // namespace fsdp
