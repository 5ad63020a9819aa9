// SPDX-License-Identifier: Apache-2.0
/// @file
/// JSON from untrusted files: all sizes are bounded, and a repeated key is an error. Typed values, and look-ups in an
/// object whose errors identify the key. JSON as text: a source that calls `dump` or `parse` of nlohmann-json compiles
/// all of its serializer or its parser, which these functions do once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {

inline constexpr std::int64_t most_config_bytes = 1'000'000;  ///< largest size of a config.json in bytes

struct JsonLimits {
  std::size_t depth = 8;        ///< depth of nested objects and arrays
  std::size_t values = 100000;  ///< number of keys and array entries in total
  std::size_t array = 100000;   ///< number of entries of one array
  std::size_t text = 65536;     ///< bytes of one string or key
  bool keep_digits = false;     ///< an integer of more than 64 bits becomes a binary value with its digits
};

/// Throws InputError "`source`: ..." unless the text is one well-formed value within the limits.
nlohmann::json parse_strict(std::string_view text, const std::string& source, const JsonLimits& limits = {});
/// The same, with keys in the order of the text.
nlohmann::ordered_json parse_strict_ordered(std::string_view text, const std::string& source,
                                            const JsonLimits& limits = {});

/// Return a value in one line; bytes that are not UTF-8, such as in paths, become U+FFFD. `ascii`: escapes all
/// characters that are not ASCII.
/// @{
std::string json_text(const nlohmann::json& value, bool ascii = false);
std::string json_text(const nlohmann::ordered_json& value);
/// @}

/// A key of an object and its value.
struct JsonMember {
  const char* key = nullptr;
  nlohmann::ordered_json value;
};
/// Returns an object with these members, in order. A braced list of nlohmann-json's own makes more code.
nlohmann::ordered_json json_object(std::initializer_list<JsonMember> members);
std::string object_text(std::initializer_list<JsonMember> members);  ///< json_text of such an object

/// Returns the value of a text; a discarded value if the text is not JSON. For JSON that this program wrote, and for
/// single lines; files of others are read by parse_strict. Keys of an ordered_json are searched one by one.
/// @{
nlohmann::json json_value(std::string_view text);
nlohmann::ordered_json json_value_ordered(std::string_view text);
/// @}

/// Reads a whole regular file of at most `most_bytes` bytes. Throws InputError.
std::string read_small_file(const std::filesystem::path& path, std::int64_t most_bytes);

/// Returns a value as a bool, as a non-negative integer that fits T, as a real number or as a text; nothing if it has
/// another type. A std::string_view is valid as long as the value.
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

/// Returns the value of a key as value_as does; also nothing if the key is missing or `object` is not an object.
template <class T, class Json>
std::optional<T> value_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : value_as<T>(*found);
}

/// The meaning of `null` for a look-up with a default.
enum class Null {
  refused,  ///< an error, since the file does not specify a value
  absent    ///< the default, for keys where `transformers` uses it for null
};

/// Typed look-ups in an object of the file `source`. Both must outlive this object. Errors report the object's name,
/// such as "model", if it is one of several in the file.
class Keys {
 public:
  /// Throws InputError "`source`: not a JSON object" if the value is not an object.
  Keys(const nlohmann::json& object, const std::string& source, std::string name = {})
      : object_(&object), source_(&source), name_(std::move(name)) {
    if (!object.is_object() && !name_.empty()) refuse("is not an object {...}");
    require<InputError>(object.is_object(), source, ": not a JSON object");
  }
  Keys(const nlohmann::json&, std::string&&, std::string = {}) = delete;
  Keys(nlohmann::json&&, const std::string&, std::string = {}) = delete;

  const nlohmann::json& json() const { return *object_; }
  const std::string& source() const { return *source_; }
  const std::string& name() const { return name_; }
  bool given(const char* key) const { return object_->contains(key); }  ///< whether the key is present, even as null
  /// Returns whether the key is present and not null.
  bool has(const char* key) const { return given(key) && !at(key).is_null(); }
  const nlohmann::json& at(const char* key) const { return object_->at(key); }

  // A key without a default (`otherwise`) must be present.
  std::string text(const char* key, std::optional<std::string> otherwise = {}, Null null = Null::refused) const {
    return get(key, "it must be a text", std::move(otherwise), null);
  }
  std::int64_t integer(const char* key, std::optional<std::int64_t> otherwise = {}, Null null = Null::refused) const {
    return get(key, "it must be a whole number that is not negative", otherwise, null);
  }
  std::int64_t integer_up_to(const char* key, std::int64_t most) const {
    const std::optional<std::int64_t> value = value_as<std::int64_t>(present(key));
    if (!value || *value > most) wrong(key, message("it must be a whole number of 0 to ", most));
    return *value;
  }
  double number(const char* key, std::optional<double> otherwise = {}, Null null = Null::refused) const {
    return get(key, "it must be a number", otherwise, null);
  }
  bool boolean(const char* key, std::optional<bool> otherwise = {}, Null null = Null::refused) const {
    return get(key, "it must be true or false", otherwise, null);
  }
  Keys object(const char* key) const {
    if (!present(key).is_object()) wrong(key, "it must be an object");
    return Keys(at(key), *source_, name_.empty() ? "" : name_ + "'s " + key);
  }
  const nlohmann::json& array(const char* key) const {
    if (!present(key).is_array()) wrong(key, "it must be a list [...]");
    return at(key);
  }

  /// Throws InputError for every value but `only`. The key may be absent.
  void expect(const char* key, const nlohmann::json& only, Null null = Null::refused) const {
    if (takes_default(key, null)) return;
    if (at(key) != only) wrong(key, "only " + json_text(only) + " is supported");
  }

  /// Throws InputError "`source`: the `name` ..."; for an object with a name.
  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw InputError(message(*source_, ": the ", name_, " ", shortened_part(parts)...));
  }

  std::string dump(const char* key) const { return shortened(json_text(at(key))); }

 private:
  template <class T>
  T get(const char* key, const char* must, std::optional<T> otherwise, Null null) const {
    if (otherwise && takes_default(key, null)) return *std::move(otherwise);
    std::optional<T> value = value_as<T>(present(key));
    if (!value) wrong(key, must);
    return *std::move(value);
  }
  const nlohmann::json& present(const char* key) const {
    if (!given(key)) throw InputError(message(*source_, ": the ", owner(), "key \"", key, "\" is missing"));
    return at(key);
  }
  bool takes_default(const char* key, Null null) const {
    return !given(key) || (null == Null::absent && at(key).is_null());
  }
  [[noreturn]] void wrong(const char* key, std::string_view must) const {
    throw InputError(
        message(*source_, ": ", name_.empty() ? "" : "the ", owner(), "\"", key, "\" is ", dump(key), "; ", must));
  }
  std::string owner() const { return name_.empty() ? "" : name_ + "'s "; }

  const nlohmann::json* object_;
  const std::string* source_;
  std::string name_;
};

}  // namespace fsdp
