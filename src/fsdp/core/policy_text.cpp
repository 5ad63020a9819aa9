// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/policy_text.hpp>

#include <algorithm>
#include <optional>

#include <tessera/fsdp/core/terminal_text.hpp>

#include "strings.hpp"

namespace fsdp {
namespace {

/// Returns the text before a number; for an option, its whole text.
std::string key_of(const PolicyNumber& number) {
  return std::string(number.name) + (number.name.empty() || number.is_option ? "" : "=");
}

/// Returns the number that a part of a text specifies; nothing if it specifies another number, or none.
std::optional<std::int64_t> number_in(std::string_view text, const PolicyNumber& number) {
  const std::string key = key_of(number);
  if (number.is_option) return text == key ? std::optional<std::int64_t>(1) : std::nullopt;
  if (!text.starts_with(key)) return std::nullopt;
  const std::string_view value = text.substr(key.size());
  if (number.is_bytes && value == "auto") return memory_left;
  const auto found = number.is_bytes ? number_of_bytes(value) : number_of_digits(value);
  return found && *found >= number.least ? found : std::nullopt;
}

}  // namespace

PolicyParts::PolicyParts() = default;
PolicyParts::PolicyParts(const PolicyParts&) = default;
PolicyParts::~PolicyParts() = default;

void PolicyParts::word(std::string_view word) { list_.push_back({.word = std::string(word)}); }

void PolicyParts::add(const PolicyNumber& number, void* value, std::int64_t (*get)(const void*),
                      void (*set)(void*, std::int64_t)) {
  list_.push_back({.word = {}, .number = number, .value = value, .get = get, .set = set});
}

void PolicyParts::mark_inner(std::size_t begin, std::string_view usual) {
  require(begin < list_.size(), "a policy's visit lists nothing; begin with parts.word(its name)");
  for (std::size_t i = begin; i < list_.size(); ++i) list_[i].inner = true;
  list_[begin].implied = list_[begin].word == usual;
}

void PolicyParts::suffix(std::string_view name, std::string_view value) {
  list_.push_back({.word = std::string(name).append("=").append(value), .fixed = true});
}

std::string PolicyParts::text(bool kind_alone) const {
  std::string text;
  for (auto part = list_.begin(); part != list_.end(); ++part) {
    const PolicyNumber& number = part->number;
    std::string said = part->word;
    if (part->implied && (part + 1 == list_.end() || part[1].value != nullptr)) continue;
    if (part->value != nullptr) {
      const std::int64_t value = part->get(part->value);
      if (number.kind.empty() && (kind_alone || value == number.usual)) continue;
      said = key_of(number);
      if (number.is_bytes && value == memory_left)
        said += "auto";
      else if (!number.is_option)
        said += kind_alone ? std::string(number.kind) : std::to_string(value);
    }
    text += (text.empty() ? "" : ":") + said;
  }
  return text;
}

void PolicyParts::set(std::string_view name, std::int64_t number) {
  for (const Part& part : list_)
    if (part.value != nullptr && part.number.name == name) part.set(part.value, number);
}

bool PolicyParts::read(std::string_view text, std::string_view what) {
  require(!list_.empty(), "a policy's visit lists nothing; begin with parts.word(its name)");
  std::vector<std::string_view> rest = split_at(text, ':');
  if (rest.front() != list_.front().word) return false;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Part& part : list_) {
    std::optional<std::int64_t> number;
    const auto said = std::ranges::find_if(rest, [&](std::string_view each) {
      if (part.value == nullptr) return each == part.word && !part.fixed;
      return (number = number_in(each, part.number)).has_value();
    });
    if (said != rest.end()) {
      rest.erase(said);  // a second part for the same number remains, and is rejected
      if (number) part.set(part.value, *number);
      if (number && *number > part.number.most) most = part.number.most;
    } else if ((part.value == nullptr || !part.number.kind.empty()) && !part.implied && !part.fixed) {
      return false;
    }
  }
  require<InputError>(!rest.empty() || most == std::numeric_limits<std::int64_t>::max(), what, shortened(text),
                      ": the number must be at most ", most);
  return rest.empty();
}

}  // namespace fsdp
