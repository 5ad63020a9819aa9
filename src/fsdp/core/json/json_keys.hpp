// SPDX-License-Identifier: Apache-2.0
/// @file
/// Typed values of JSON, and look-ups in one object whose errors name the key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {

/// Returns a value as a bool, a whole number that is not negative and fits T, a real number or a text; nothing if it is
/// of another type. A std::string_view is valid as long as the value.
template <class T, class Json>
std::optional<T> value_as(const Json& value) {
  bool fits = false;
  if constexpr (std::is_same_v<T, bool>)
    fits = value.is_boolean();
  else if constexpr (std::is_integral_v<T>)
    fits = value.is_number_unsigned() && std::in_range<T>(value.template get<std::uint64_t>());
  else if constexpr (std::is_floating_point_v<T>)
    fits = value.is_number();
  else {
    static_assert(std::is_same_v<T, std::string> || std::is_same_v<T, std::string_view>);
    fits = value.is_string();
  }
  return fits ? std::optional<T>(value.template get<T>()) : std::nullopt;
}

/// Returns a key's value as value_as does; nothing, too, if the key is missing or `object` is no object.
template <class T, class Json>
std::optional<T> value_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : value_as<T>(*found);
}

/// What a key that holds `null` means to a look-up with a default.
enum class Null {
  refused,  ///< an error: the file does not say what it asks for
  absent    ///< the default, where `transformers` takes null for it
};

/// Typed look-ups in an object of the file `source`. Both must outlive it.
class Keys {
 public:
  /// Throws InputError "`source`: not a JSON object" for another value.
  Keys(const nlohmann::json& object, const std::string& source) : object_(&object), source_(&source) {
    require<InputError>(object.is_object(), source, ": not a JSON object");
  }
  Keys(const nlohmann::json&, std::string&&) = delete;
  Keys(nlohmann::json&&, const std::string&) = delete;

  const std::string& source() const { return *source_; }
  /// Whether the key is present, even as null.
  bool given(const char* key) const { return object_->contains(key); }
  /// Whether the key is present and not null.
  bool has(const char* key) const { return given(key) && !at(key).is_null(); }
  const nlohmann::json& at(const char* key) const { return object_->at(key); }

  std::string text(const char* key) const { return get<std::string>(key, "it must be a text"); }
  std::string text(const char* key, const std::string& otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : text(key);
  }
  std::int64_t integer(const char* key) const {
    return get<std::int64_t>(key, "it must be a whole number that is not negative");
  }
  std::int64_t integer(const char* key, std::int64_t otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : integer(key);
  }
  double number(const char* key) const { return get<double>(key, "it must be a number"); }
  double number(const char* key, double otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : number(key);
  }
  bool boolean(const char* key, bool otherwise, Null null = Null::refused) const {
    return takes_default(key, null) ? otherwise : get<bool>(key, "it must be true or false");
  }
  Keys object(const char* key) const {
    require_that(key, present(key).is_object(), "it must be an object");
    return Keys(at(key), *source_);
  }

  /// Throws for every value but `only`. The key may be absent.
  void expect(const char* key, const nlohmann::json& only, Null null = Null::refused) const {
    if (takes_default(key, null)) return;
    require<InputError>(at(key) == only, *source_, ": \"", key, "\" is ", dump(key), "; only ", only.dump(),
                        " is supported");
  }

  std::string dump(const char* key) const {
    return shortened(at(key).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  }

 private:
  template <class T>
  T get(const char* key, const char* must) const {
    const std::optional<T> value = value_as<T>(present(key));
    require_that(key, value.has_value(), must);
    return *value;
  }
  const nlohmann::json& present(const char* key) const {
    require<InputError>(given(key), *source_, ": the key \"", key, "\" is missing");
    return at(key);
  }
  bool takes_default(const char* key, Null null) const {
    return !given(key) || (null == Null::absent && at(key).is_null());
  }
  void require_that(const char* key, bool holds, const char* must) const {
    if (!holds) throw InputError(message(*source_, ": \"", key, "\" is ", dump(key), "; ", must));
  }

  const nlohmann::json* object_;
  const std::string* source_;
};

}  // namespace fsdp
