// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/tensor_pattern.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>

#include <fnmatch.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "strings.hpp"

namespace fsdp {
namespace {

constexpr std::array roles{Role::matrix, Role::table, Role::vector};

/// Sets the member that a part of a pattern's text specifies. Returns whether the part is valid.
bool set_part(TensorPattern& pattern, std::string_view part) {
  const TensorPattern usual;
  const std::size_t split = part.find('=');
  if (split == std::string_view::npos) {
    const std::vector<std::string_view> alternatives = split_at(part, '|');
    if (!pattern.names.empty() || std::ranges::count(alternatives, std::string_view()) > 0) return false;
    pattern.names = part;
    return true;
  }
  const std::string_view key = part.substr(0, split), value = part.substr(split + 1);
  for (const Role role : roles)
    if (key == "role" && name_of(role) == value && !pattern.role) return pattern.role = role, true;
  const std::optional<std::int64_t> number = number_of_digits(value);
  std::int64_t& bound = key == "least" ? pattern.least : pattern.most;
  if (!number || (key != "least" && key != "most") || bound != (key == "least" ? usual.least : usual.most))
    return false;
  bound = *number;
  return true;
}

}  // namespace

std::string name_of(Role role) {
  static constexpr std::array names{"matrix", "table", "vector"};
  const auto index = static_cast<std::size_t>(role);
  return index < names.size() ? names[index] : "of no kind";
}

bool TensorPattern::matches(std::string_view unit, const Parameter& parameter) const {
  const std::int64_t elements = parameter.shape.numel();
  if ((role && *role != parameter.role) || elements < least || elements > most) return false;
  std::vector<std::string_view> all{unit};
  for (const std::string_view name : {std::string_view(parameter.name), std::string_view(parameter.tied_as)}) {
    if (name.empty()) continue;
    all.push_back(name);
    std::ranges::copy(split_at(name, '.'), std::back_inserter(all));
  }
  return std::ranges::any_of(split_at(names, '|'), [&](std::string_view alternative) {
    return std::ranges::any_of(all, [pattern = std::string(alternative)](std::string_view name) {
      return ::fnmatch(pattern.c_str(), std::string(name).c_str(), 0) == 0;
    });
  });
}

std::string TensorPattern::text() const {
  return message(names, role ? message(",role=", name_of(*role)) : "", least > 0 ? message(",least=", least) : "",
                 most < std::numeric_limits<std::int64_t>::max() ? message(",most=", most) : "");
}

TensorPattern TensorPattern::from(std::string_view text, std::string_view what) {
  TensorPattern pattern{.names = {}};
  for (const std::string_view part : split_at(text, ','))
    require<InputError>(
        set_part(pattern, part), what, "'", shortened(part), "' of the pattern '", shortened(text),
        "' is not valid; write names, joined with |, then role=matrix|table|vector, least=N and most=N, each once and "
        "after a comma");
  if (pattern.names.empty()) pattern.names = "*";
  return pattern;
}

std::size_t index_of(std::span<const TensorPattern> patterns, std::string_view unit, const Parameter& parameter,
                     std::string_view what) {
  std::size_t found = patterns.size();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (!patterns[i].matches(unit, parameter)) continue;
    if (found < patterns.size())
      throw InputError(message(what, "'", parameter.name, "' of ", unit, " matches both '", patterns[found].text(),
                               "' and '", patterns[i].text(),
                               "'; a tensor may match one pattern, so make one of them narrower"));
    found = i;
  }
  return found;
}

}  // namespace fsdp
