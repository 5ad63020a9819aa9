// SPDX-License-Identifier: Apache-2.0
/// @file
/// An object of tokenizer.json with its name for errors, and the functions that read the parts of a tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../fsdp/core/json/json_keys.hpp"
#include "added_tokens.hpp"
#include "bpe/bpe.hpp"
#include "stages/decoder.hpp"
#include "stages/normalizer.hpp"
#include "stages/post_processor.hpp"
#include "stages/pre_tokenizer.hpp"

namespace fsdp::text {

inline constexpr std::int64_t largest_id = 0x7FFFFFFF;

/// An object of the file. Functions throw InputError "`source`: the `name` ..." for a missing or invalid value.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string name, const std::string& source);

  const std::string& source() const { return *source_; }
  const std::string& name() const { return name_; }
  const nlohmann::json& value() const { return *value_; }

  bool has(const char* key) const { return value_->contains(key) && !value_->at(key).is_null(); }
  bool flag(const char* key, bool otherwise) const { return has(key) ? flag(key) : otherwise; }
  bool flag(const char* key) const { return get<bool>(key, "that is neither true nor false"); }
  std::string text(const char* key) const { return get<std::string>(key, "that is not a text"); }
  std::string character(const char* key) const;  ///< a text with exactly one character
  std::int64_t number(const char* key, std::int64_t most) const;
  const nlohmann::json& array(const char* key) const;
  JsonPart object(const char* key) const { return JsonPart(at(key), name_ + "'s " + key, *source_); }

  std::string type() const { return text("type"); }

  /// Returns the entries of a Sequence, with nested Sequences flattened; the part itself if it is not a Sequence.
  std::vector<JsonPart> steps(const char* key) const;

  template <class... Parts>
  [[noreturn]] void refuse(const Parts&... parts) const {
    throw InputError(message(*source_, ": the ", name_, " ", shortened_part(parts)...));
  }

 private:
  const nlohmann::json& at(const char* key) const;
  template <class T>
  T get(const char* key, const char* wrong) const {
    std::optional<T> value = value_as<T>(at(key));
    if (!value) refuse("has \"", key, "\" ", wrong);
    return *std::move(value);
  }

  const nlohmann::json* value_;
  std::string name_;
  const std::string* source_;
};

/// {"String": ..} if `literal`, else {"Regex": ..}.
struct PatternText {
  bool literal = false;
  std::string text;
};
PatternText read_pattern_text(const JsonPart& part);
Replace read_replace(const JsonPart& part);

Normalizer read_normalizer(const JsonPart& part);
PreTokenizer read_pre_tokenizer(const JsonPart& part);
Decoder read_decoder(const JsonPart& part);
PostProcessor read_post_processor(const JsonPart& part);
BpeFile read_bpe(const JsonPart& part);

/// Reads the entries of "added_tokens", with the ids in the file.
std::vector<AddedToken> read_added_tokens(const nlohmann::json& root, const std::string& source);

}  // namespace fsdp::text
