// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/flag_set.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/strings.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp::train {
namespace {

template <class T>
void parse_number(std::string_view flag, std::string_view text, T& value, const char* what) {
  const std::optional<T> number = parsed<T>(text);
  require<InputError>(number.has_value(), "--", flag, " '", shortened(text), "' is not ", what);
  value = *number;
}

template <class T>
std::string print_number(T value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return {text.data(), end};
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, std::int64_t& value) {
  parse_number(flag, text, value, "a whole number");
}
void from_text(std::string_view flag, std::string_view text, std::uint64_t& value) {
  parse_number(flag, text, value, "a whole number of at least 0");
}
void from_text(std::string_view flag, std::string_view text, double& value) {
  parse_number(flag, text, value, "a number");
  require<InputError>(std::isfinite(value), "--", flag, " '", shortened(text), "' is not a finite number");
}
void from_text(std::string_view flag, std::string_view text, bool& value) {
  require<InputError>(text == "true" || text == "false", "--", flag, " '", shortened(text),
                      "' is neither true nor false");
  value = text == "true";
}
void from_text(std::string_view, std::string_view text, std::string& value) { value = text; }
void from_text(std::string_view flag, std::string_view text, const NamedValue& value) {
  std::visit(
      [&]<class T>(const T& held) {
        if constexpr (std::is_same_v<T, NamedChoice>) {
          const auto found = std::ranges::find(held.names, text);
          if (found == held.names.end())
            refuse_unknown(flag, text, std::vector<std::string>(held.names.begin(), held.names.end()));
          *held.index = static_cast<std::uint8_t>(found - held.names.begin());
        } else {
          from_text(flag, text, *held);
        }
      },
      value.value);
}
std::string to_text(std::int64_t value) { return print_number(value); }
std::string to_text(std::uint64_t value) { return print_number(value); }
std::string to_text(double value) { return print_number(value); }
std::string to_text(bool value) { return value ? "true" : "false"; }
std::string to_text(const std::string& value) { return value; }
std::string to_text(const NamedValue& value) { return to_text(copy_of(value)); }
std::string to_text(const ConfigValue& value) {
  return std::visit([](const auto& held) { return to_text(held); }, value.value);
}

std::string flag_name(std::string_view value) {
  constexpr std::string_view ending = "_size";
  if (value.size() > ending.size() && value.ends_with(ending)) value.remove_suffix(ending.size());
  std::string name(value);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

void set_given(const NamedValues& values, const GivenValues& given) {
  for (const NamedValue& each : values.list()) {
    const auto found = given.find(flag_name(each.name));
    if (found != given.end()) from_text(found->first, found->second, each);
  }
}

void require_value(std::string_view what, std::string_view value, bool blank_is_value) {
  const bool blank = value.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos;
  require<InputError>(!value.empty() && (blank_is_value || !blank), what, " '", value, "' is ",
                      value.empty() ? "empty" : "white space alone", "; give it a value, or leave it out");
}

void Flag::give(const Texts& texts) const {
  require<InputError>(kind == FlagKind::list || texts.size() == 1, "--", name, " takes one value and got ",
                      texts.size());
  for (const std::string& text : texts)
    require_value((position ? "argument " : "--") + name, text, kind == FlagKind::verbatim);
  set(texts);
  if (check) check();
}

Flag& FlagSet::add(const NamedValue& value) {
  const std::string name = flag_name(value.name);
  return std::visit(
      [&]<class T>(const T& held) -> Flag& {
        if constexpr (std::is_same_v<T, NamedChoice>)
          return add(
              name, [value] { return to_text(value); },
              [name, value](const std::string& text) { from_text(name, text, value); }, value.help);
        else
          return add(name, *held, value.help);
      },
      value.value);
}

void FlagSet::add_given(const NamedValue& like, GivenValues& given, const std::string& help) {
  const auto add_like = [&, name = flag_name(like.name)]<class Held>(const Held&) {
    using T = std::remove_pointer_t<std::conditional_t<std::is_same_v<Held, NamedChoice>, std::string*, Held>>;
    const auto load = [] { return T(); };
    const auto store = [name, &given](const T& value) { given[name] = to_text(value); };
    add(Effect::chosen, name, load, store, help).get = [name, &given] {
      const auto found = given.find(name);
      return found == given.end() ? Texts() : Texts{found->second};
    };
  };
  std::visit(add_like, like.value);
}

Flag& FlagSet::add(Flag flag) {
  require(
      find(flag.name) == nullptr, "the flag --", flag.name,
      " is there twice: a value of the model or a constant of the optimizer has the name of another flag; rename it");
  return flags_.emplace_back(std::move(flag));
}

void FlagSet::require_ranges() const {
  for (const Flag& flag : flags_) {
    if (flag.check) flag.check();
    for (const std::string& text : flag.get()) require_value("--" + flag.name, text, flag.kind == FlagKind::verbatim);
  }
}

std::string FlagSet::refusal(const std::string& name) const {
  const auto refused = refused_.find(name);
  return refused == refused_.end() ? "" : refused->second;
}

Flag* FlagSet::find(std::string_view name) {
  for (Flag& flag : flags_)
    if (flag.name == name && !flag.position) return &flag;
  return nullptr;
}

bool FlagSet::is_given(std::string_view name) const {
  const auto found = std::ranges::find(flags_, name, &Flag::name);
  require(found != flags_.end(), "no flag is called --", name);
  return found->given;
}

std::vector<std::string> FlagSet::names() const {
  std::vector<std::string> names;
  for (const Flag& flag : flags_)
    if (!flag.position) names.push_back(flag.name);
  return names;
}

}  // namespace fsdp::train
