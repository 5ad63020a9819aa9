// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/flag_values.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/strings.hpp"
#include "../../fsdp/core/value_names.hpp"

namespace fsdp {
namespace {

constexpr std::string_view role_key = "role", units_key = "units", frozen_key = "frozen";
constexpr std::array<Role, 3> roles{Role::matrix, Role::table, Role::vector};

std::string_view key_of(std::string_view word) { return word.substr(0, word.find('=')); }

Role role_of(const std::string& where, std::string_view text) {
  std::vector<std::string> names;
  for (const Role role : roles) {
    names.push_back(name_of(role));
    if (names.back() == text) return role;
  }
  throw InputError(message(where, "role ", shortened(text), " is not known; ", suggestion(text, names)));
}

/// Applies a word after the pattern: `frozen`, or key=value. Throws InputError for any other word.
void set_word(const std::string& where, std::string_view word, OptimizerGroup& group) {
  const std::string_view key = key_of(word), value = word.substr(std::min(key.size() + 1, word.size()));
  const auto number = std::ranges::find(group_numbers, key, &GroupNumber::name);
  if (key == frozen_key) {
    require<InputError>(word == frozen_key, where, "frozen has no value; write it alone");
    group.frozen = true;
  } else if (key == units_key || key == role_key || number != group_numbers.end()) {
    require<InputError>(!value.empty(), where, key, " has no value; write ", key, "=VALUE");
    if (key == units_key) group.units = value;
    if (key == role_key) group.role = role_of(where, value);
    if (number == group_numbers.end()) return;
    group.*number->value = parsed<double>(value);
    require<InputError>((group.*number->value).has_value(), where, key, " is '", shortened(value),
                        "', which is not a number");
  } else {
    std::vector<std::string> known;
    for (const GroupNumber& each : group_numbers) known.emplace_back(each.name);
    for (const std::string_view each : {frozen_key, role_key, units_key}) known.emplace_back(each);
    throw InputError(message(where, "'", shortened(key), "' is not known; ", suggestion(key, known)));
  }
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, OptimizerGroup& value) {
  const std::string where = message("--", flag, " '", shortened(text), "': ");
  value = {};
  std::vector<std::string_view> words = split_at(text, ' '), keys;
  std::erase(words, std::string_view());
  if (!words.empty() && key_of(words.front()) == words.front()) {
    value.parameters = words.front();
    words.erase(words.begin());
  }
  for (const std::string_view word : words) {
    require<InputError>(std::ranges::find(keys, key_of(word)) == keys.end(), where, key_of(word),
                        " is there twice; give it once");
    keys.push_back(key_of(word));
    set_word(where, word, value);
  }
  require<InputError>(!words.empty(), where,
                      "sets nothing; give it lr, weight-decay, clip or frozen in the same text, as in ", "--", flag,
                      " '*norm* lr=0.5'");
  value.check();
}

std::string to_text(const OptimizerGroup& value) {
  return message(train::selection_text(value), " ", train::values_text(value));
}

void from_text(std::string_view flag, std::string_view text, Ulysses& value) {
  value = {};
  if (text == WholeSequences::name) return;
  PolicyParts parts;
  parts.part(value);
  const std::string what = message("--", flag, " ");
  require<InputError>(text != "ulysses", what, "ulysses does not say how many ranks share each sequence; write ",
                      "ulysses:K, such as ulysses:2");
  if (!parts.read(text, what))
    refuse_unknown(flag, text, std::vector<std::string>{"whole", "ulysses:K", "ulysses:K:parts=P"});
  require<InputError>(value.ranks > 1 || value.parts <= 1, what, text,
                      ": parts are of ranks that share a sequence; give ulysses:K with K above 1, or leave parts out");
}

std::string to_text(const Ulysses& value) { return value.text(); }

}  // namespace fsdp

namespace fsdp::train {

std::int64_t bytes_of(std::string_view text) {
  const std::int64_t bytes = number_of_bytes(text).value_or(0);
  return bytes < std::numeric_limits<std::int64_t>::max() ? bytes : 0;
}

std::int64_t parse_bytes(std::string_view flag, std::string_view text) {
  const std::int64_t bytes = bytes_of(text);
  require<InputError>(bytes > 0, "--", flag, " '", shortened(text),
                      "' is not a number of bytes; give one such as 8589934592 or 8GiB");
  return bytes;
}

std::string selection_text(const OptimizerGroup& group) {
  return message(group.parameters, group.units == "*" ? "" : message(" ", units_key, "=", group.units),
                 group.role ? message(" ", role_key, "=", name_of(*group.role)) : "");
}

std::string values_text(const OptimizerGroup& group) {
  std::string text(group.frozen ? frozen_key : std::string_view());
  for (const GroupNumber& number : group_numbers)
    if (const std::optional<double>& value = group.*number.value)
      text += message(text.empty() ? "" : " ", number.name, "=", to_text(*value));
  return text;
}

ConfigValues values_of_groups(std::span<const OptimizerGroup> groups) {
  ConfigValues values;
  for (const OptimizerGroup& group : groups)
    values.push_back({.name = selection_text(group), .value = values_text(group)});
  return values;
}

std::map<std::string, std::string> recorded_groups(const std::string& text) {
  std::map<std::string, std::string> groups;
  for (const std::string_view line : split_at(text, '\n')) {
    if (line.empty()) continue;
    OptimizerGroup group;
    from_text("group", line, group);
    groups[selection_text(group)] = values_text(group);
  }
  return groups;
}

namespace {

constexpr std::string_view none_name = "none", optimizer_name = "optimizer", inputs_name = "inputs";

/// Returns the share of "inputs" or "inputs:SHARE"; nothing for any other text. Throws InputError if it is invalid.
std::optional<double> input_share(std::string_view flag, std::string_view text, std::string_view part) {
  if (part == inputs_name) return 1;
  if (!part.starts_with(inputs_name) || part[inputs_name.size()] != ':') return std::nullopt;
  std::string_view number = part.substr(inputs_name.size() + 1);
  const bool percents = number.ends_with('%');
  if (percents) number.remove_suffix(1);
  const double share = parsed<double>(number).value_or(0) / (percents ? 100 : 1);
  require<InputError>(share > 0 && share <= 1, "--", flag, " ", shortened(text),
                      ": the share of blocks must be above 0 and at most 1, or 100%; give one such as inputs:0.25");
  return share;
}

/// Reads a file's keys. All keys are required, except those of a network that one node does not use.
plan::Cluster read_file(const std::string& path, std::int64_t ranks) {
  plan::Cluster cluster;
  FlagSet keys;
  const std::vector<NamedValue> values = NamedValues(cluster).list();
  for (const NamedValue& value : values) keys.add(value);
  apply_keys(keys, path);
  if (ranks > 0) cluster.ranks = ranks;
  const bool one_node = cluster.ranks > 0 && cluster.ranks <= cluster.ranks_per_node;
  for (const NamedValue& value : values)
    require<InputError>(keys.is_given(flag_name(value.name)) || (value.name == "ranks" && ranks > 0) ||
                            (one_node && value.name.starts_with("network_")),
                        path, ": ", value.name, " is missing; give it: ", value.help, " (tessera calibrate writes it)");
  if (!keys.is_given("network-latency")) cluster.network_latency = cluster.node_latency;  // then not used
  if (!keys.is_given("network-bandwidth")) cluster.network_bandwidth = cluster.node_bandwidth;
  prefixed(message(path, ": "), [&] { cluster.validate(); });
  return cluster;
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, OffloadFlag& value) {
  OffloadFlag found;
  if (text != none_name)
    for (const std::string_view part : split_at(text, ',')) {
      require<InputError>(part != none_name, "--", flag, " ", shortened(text),
                          ": none stands alone; leave it or the rest out");
      const std::optional<double> share = input_share(flag, text, part);
      if (!share && part != optimizer_name)
        refuse_unknown(flag, text,
                       std::vector<std::string>{"none", "optimizer", "inputs", "inputs:SHARE", "optimizer,inputs",
                                                "optimizer,inputs:SHARE"});
      require<InputError>(share ? found.inputs == 0 : !found.optimizer, "--", flag, " ", shortened(text),
                          " names the same twice; name each once");
      if (share)
        found.inputs = *share;
      else
        found.optimizer = true;
    }
  value = found;
}

std::string to_text(const OffloadFlag& value) {
  if (value == OffloadFlag{}) return std::string(none_name);
  std::string text(value.optimizer ? optimizer_name : "");
  if (value.inputs == 0) return text;
  text += (value.optimizer ? "," : "") + std::string(inputs_name);
  return value.inputs == 1 ? text : text + ":" + to_text(value.inputs);
}

void require_stack_shards(const Ulysses& sequence, bool shards) {
  require<InputError>(shards || sequence.ranks == 1, "--sequence ", sequence.text(),
                      ": this program's stack has whole sequences; compile it with fsdp::Ulysses as the fifth policy ",
                      "of fsdp::Stack, or leave --sequence out");
}

plan::Cluster read_cluster(const std::string& name, std::int64_t ranks) {
  const std::vector<std::string> names = plan::known_cluster_names();
  require<InputError>(!name.empty(), "--cluster is missing; give a TOML file, or a known cluster such as ",
                      names.front());
  const bool known = std::ranges::find(names, name) != names.end();
  require<InputError>(known || path_exists(name), "--cluster ", name, ": no such file, and no cluster has this name; ",
                      suggestion(name, names));
  if (known) return prefixed(message("--cluster ", name, ": "), [&] { return plan::known_cluster(name, ranks); });
  return prefixed("--cluster ", [&] { return read_file(name, ranks); });
}

}  // namespace fsdp::train
