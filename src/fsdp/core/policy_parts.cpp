// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/policy_parts.hpp>

#include <charconv>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp {
namespace {

/// Returns what stands before a number in texts; of an option all that it says.
std::string key_of(const PolicyNumber& number) {
  return std::string(number.name) + (number.name.empty() || !number.option.empty() ? "" : "=");
}

/// Returns the number that a part of a text says; nothing if it says another one, or none.
std::optional<std::int64_t> number_in(std::string_view text, const PolicyNumber& number) {
  const std::string key = key_of(number);
  if (!number.option.empty()) return text == key ? std::optional<std::int64_t>(1) : std::nullopt;
  const auto found = text.starts_with(key) ? whole_number(text.substr(key.size())) : std::nullopt;
  return found && *found >= number.least ? found : std::nullopt;
}

}  // namespace

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
      if (number.option.empty()) said += kind_alone ? std::string(number.kind) : std::to_string(value);
    }
    text += (text.empty() ? "" : ":") + said;
  }
  return text;
}

bool PolicyParts::read(std::string_view text, std::string_view what) {
  std::vector<std::string_view> rest = parts_of(text);
  if (rest.front() != list_.front().word) return false;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const Part& part : list_) {
    const bool of_kind = part.value == nullptr || !part.number.kind.empty();
    bool found = false;
    std::erase_if(rest, [&](std::string_view said) {
      if (found && of_kind) return false;  // a second one is too much
      if (part.value == nullptr) return found = said == part.word && !part.fixed;
      const auto number = number_in(said, part.number);
      if (!number) return false;
      if (*number > part.number.most) most = part.number.most;
      part.set(part.value, *number);
      return found = true;
    });
    if (of_kind && !found && !part.implied && !part.fixed) return false;
  }
  require<InputError>(!rest.empty() || most == std::numeric_limits<std::int64_t>::max(), what, shortened(text),
                      ": the number must be at most ", most);
  return rest.empty();
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::string_view rest = text;; rest.remove_prefix(parts.back().size() + 1)) {
    parts.push_back(rest.substr(0, rest.find(':')));
    if (parts.back().size() == rest.size()) return parts;
  }
}

std::optional<std::int64_t> whole_number(std::string_view digits) {
  if (digits.empty() || digits.find_first_not_of("0123456789") != std::string_view::npos) return std::nullopt;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() ? number : std::numeric_limits<std::int64_t>::max();
}

}  // namespace fsdp
