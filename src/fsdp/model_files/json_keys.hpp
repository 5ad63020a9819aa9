// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading the keys of one JSON object.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {

/// What a key that holds `null` means to a look-up with a default.
enum class Null {
  refused,  ///< an error: the file does not say what it asks for
  absent    ///< the default, where `transformers` takes null for it
};

/// Typed look-ups, whose errors name the key and what it holds.
class Keys {
 public:
  Keys(const nlohmann::json& object, const std::string& source) : object_(object), source_(source) {}

  /// Whether the key is present, even as null.
  bool given(const char* key) const { return object_.contains(key); }
  /// Whether the key is present and not null.
  bool has(const char* key) const { return given(key) && !object_.at(key).is_null(); }

  std::string text(const char* key) const {
    require_that(key, present(key).is_string(), "it must be a text");
    return object_.at(key).get<std::string>();
  }
  std::string text(const char* key, const std::string& otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : text(key);
  }

  std::int64_t integer(const char* key) const {
    const nlohmann::json& value = present(key);
    require_that(key, value.is_number_unsigned() && value.get<std::uint64_t>() <= INT64_MAX,
                 "it must be a whole number that is not negative");
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const char* key, std::int64_t otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : integer(key);
  }

  double number(const char* key) const {
    require_that(key, present(key).is_number(), "it must be a number");
    return object_.at(key).get<double>();
  }
  double number(const char* key, double otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : number(key);
  }

  bool boolean(const char* key, bool otherwise, Null null = Null::refused) const {
    if (takes_default(key, null)) return otherwise;
    require_that(key, object_.at(key).is_boolean(), "it must be true or false");
    return object_.at(key).get<bool>();
  }

  /// Throws for every value but `only`. The key may be absent.
  void expect(const char* key, const nlohmann::json& only, Null null = Null::refused) const {
    if (takes_default(key, null)) return;
    require<InputError>(object_.at(key) == only, source_, ": \"", key, "\" is ", dump(key), "; only ", only.dump(),
                        " is supported");
  }

  std::string dump(const char* key) const {
    return shortened(object_.at(key).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  const nlohmann::json& at(const char* key) const { return object_.at(key); }

 private:
  bool takes_default(const char* key, Null null) const {
    return !given(key) || (null == Null::absent && object_.at(key).is_null());
  }
  const nlohmann::json& present(const char* key) const {
    require<InputError>(given(key), source_, ": the key \"", key, "\" is missing");
    return object_.at(key);
  }
  void require_that(const char* key, bool holds, const char* must) const {
    require<InputError>(holds, source_, ": \"", key, "\" is ", dump(key), "; ", must);
  }

  const nlohmann::json& object_;
  const std::string& source_;
};

}  // namespace fsdp
