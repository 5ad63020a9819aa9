// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/optimizer_choice.hpp>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/fsdp/core/terminal_text.hpp>

namespace fsdp::train {
namespace {

/// Calls f(optimizer) for each kind: the kind of `start` with its constants, the others with their defaults.
template <class F>
void for_each_kind(const optim::RunTimeOptimizer& start, F f) {
  const auto one = [&]<class Kind>(std::type_identity<Kind>) {
    const Kind* const held = std::get_if<Kind>(&start.kind);
    f(held == nullptr ? Kind() : *held);
  };
  const auto all = [&]<class... Kinds>(const std::variant<Kinds...>&) { (one(std::type_identity<Kinds>()), ...); };
  all(start.kind);
}

/// A constant such as "beta1", and its meanings: "adamw (0.9), muon (0.9)", the kinds with their defaults, with a help.
struct Constant {
  NamedValue value;
  std::vector<std::pair<std::string, std::string>> meanings = {};
};

std::string name_of(const OptimizerChoice& choice) {
  return choice.name.empty() ? std::string(choice.start.name()) : choice.name;
}

}  // namespace

void bind(FlagSet& flags, OptimizerChoice& choice) {
  std::string names;
  std::vector<Constant> constants;
  for_each_kind(choice.start, [&](auto kind) {
    names += (names.empty() ? "" : " | ") + std::string(kind.name());
    for (const NamedValue& value : NamedValues(kind).list()) {
      auto known = std::ranges::find(constants, value.name, [](const auto& one) { return one.value.name; });
      if (known == constants.end()) known = constants.insert(known, {.value = value});
      auto& meanings = known->meanings;
      auto same = std::ranges::find(meanings, value.help, &std::pair<std::string, std::string>::second);
      if (same == meanings.end()) same = meanings.insert(same, {"", value.help});
      same->first += message(same->first.empty() ? "" : ", ", kind.name(), " (", to_text(value), ")");
    }
  });
  Flag& flag = flags.add(Effect::chosen, "optimizer", choice.name,
                         names + "; muon needs whole matrices (or heads): layout owned or blocks, or replicated");
  flag.get = [&choice] { return std::vector{name_of(choice)}; };
  for (const auto& [value, meanings] : constants) {
    std::string help;
    for (const auto& [kinds, meaning] : meanings) help += message(help.empty() ? "" : "; ", kinds, ": ", meaning);
    flags.add_given(value, choice.constants, help);
  }
}

optim::RunTimeOptimizer resolve(const OptimizerChoice& choice) {
  const std::string name = name_of(choice);
  std::vector<std::string> known;
  optim::RunTimeOptimizer chosen;
  bool found = false;
  for_each_kind(choice.start, [&](const auto& kind) {
    known.emplace_back(kind.name());
    if (name != kind.name()) return;
    chosen.kind = kind;
    found = true;
  });
  require<InputError>(found, "--optimizer ", shortened(name), " is not known; ", suggestion(name, known));
  std::string taken;
  GivenValues foreign = choice.constants;
  for (const NamedValue& constant : NamedValues(chosen).list()) {
    const std::string flag = flag_name(constant.name);
    taken += (taken.empty() ? "--" : ", --") + flag;
    foreign.erase(flag);
  }
  require<InputError>(foreign.empty(), "--", foreign.empty() ? "" : foreign.begin()->first, " is not ", name,
                      "'s; it takes ", taken);
  set_given(chosen, choice.constants);
  validate_constants(chosen);
  return chosen;
}

std::string optimizer_lines(std::string_view name, const ConfigValues& constants) {
  std::string text = message("optimizer = \"", name, "\"\n");
  for (const ConfigValue& constant : constants)
    text += message(flag_name(constant.name), " = ", to_text(constant), "\n");
  return text;
}

}  // namespace fsdp::train
