// SPDX-License-Identifier: Apache-2.0
/// @file
/// Makes a model from `--model` and the flags for its sizes. Works for any model's Config.
///
/// Every value that `Config::visit` visits is a flag (flag_name in flag_set.hpp). A config can optionally have:
/// - `preset_names()`, `preset(name)` and `default_preset`: then `--model` accepts those names as well as folders;
/// - `longest_sequence()`, const and non-const: the largest number of tokens in a sequence;
/// - `follow(changed)`: called after the user's values are set, to adjust other values; changed(name) returns whether
///   the user gave that value;
/// - `adapters()`, const and non-const: a LoraConfig; and `may_be_added(name)`: whether a value may be given together
/// with a folder's model, since it only adds weights.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/models/lora_config.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// A config with presets, whose names --model accepts.
template <class Config>
concept HasPresets = requires(std::string_view name) {
  { Config::preset_names() } -> std::same_as<std::vector<std::string>>;
  { Config::preset(name) } -> std::same_as<Config>;
  { Config::default_preset } -> std::convertible_to<std::string_view>;
};

/// A config that limits the length of a sequence: --seq-len is compared with it.
template <class Config>
concept HasLongestSequence = requires(Config changed, const Config config) {
  { changed.longest_sequence() } -> std::same_as<std::int64_t&>;
  { config.longest_sequence() } -> std::convertible_to<std::int64_t>;
};

namespace detail {

FSDP_HAS_MEMBER(preset_names)
FSDP_HAS_MEMBER(preset)
FSDP_HAS_MEMBER(default_preset)
FSDP_HAS_MEMBER(longest_sequence)
FSDP_HAS_MEMBER(follow)
FSDP_HAS_MEMBER(adapters)
FSDP_HAS_MEMBER(may_be_added)

}  // namespace detail

/// Reports to `Config::follow` which values the user gave.
struct GivenByUser {
  const GivenValues& values;
  bool operator()(std::string_view name) const { return values.contains(flag_name(name)); }  ///< whether it was given
};
using WasGiven = GivenByUser;  ///< its former name, for this version

/// Checks that a config's optional members have the right types.
template <class Config>
consteval bool check_config_parts() {
  using namespace detail;
  static_assert(
      (!has_preset_names<Config>() && !has_preset<Config>() && !has_default_preset<Config>()) || HasPresets<Config>,
      "fsdp: a config has a part of its presets, and not all as --model needs them: static std::vector<std::string> "
      "preset_names(), static Config preset(std::string_view), and a string default_preset");
  static_assert(!has_longest_sequence<Config>() || HasLongestSequence<Config>,
                "fsdp: a config has a longest_sequence, and not both that --seq-len needs: std::int64_t& "
                "longest_sequence(), and std::int64_t longest_sequence() const");
  static_assert(!has_adapters<Config>() || HasAdapters<Config>,
                "fsdp: a config has adapters, and not both that LoRA needs: LoraConfig& adapters(), and const "
                "LoraConfig& adapters() const");
  static_assert(
      !fsdp::detail::has_unmatched_target<Config>() ||
          requires(const Config config) {
            { config.unmatched_target() } -> std::convertible_to<std::string>;
          },
      "fsdp: a config has an unmatched_target that is no std::string unmatched_target() const, so that adapters of "
      "projections which the model lacks would be left out");
  static_assert(
      (!has_may_be_added<Config>() && !HasAdapters<Config>) ||
          requires(std::string_view name) {
            { Config::may_be_added(name) } -> std::convertible_to<bool>;
          },
      "fsdp: a config with adapters has no static bool may_be_added(std::string_view name), which tells their values "
      "from the model's");
  static_assert(
      !has_follow<Config>() || requires(Config config, const GivenByUser& changed) { config.follow(changed); },
      "fsdp: a config has a follow that does not take a changed(std::string_view), which says whether the user gave a "
      "value; make it template <class Changed> void follow(const Changed& changed)");
  return true;
}

/// The properties of a config type that parsing of `--model` and its flags depends on.
struct ConfigKind {
  bool has_presets = false;
  std::vector<std::string> presets = {};
  std::string default_preset = {};
  bool has_adapters = false;
  /// Flags that only add weights to a model: they are also accepted for a folder's model.
  std::vector<std::string> added = {};

  std::string model_name(const ModelChoice& choice) const;  ///< see the function of this name below
  bool is_folder(const ModelChoice& choice) const;          ///< the same
};

/// Returns the ConfigKind of a type of config.
template <class Config>
ConfigKind config_kind() {
  static_assert(check_config_parts<Config>());
  ConfigKind kind{.has_presets = HasPresets<Config>, .has_adapters = HasAdapters<Config>};
  if constexpr (HasPresets<Config>) {
    kind.presets = Config::preset_names();
    kind.default_preset = std::string_view(Config::default_preset);
  }
  if constexpr (HasAdapters<Config>) {
    Config shown;
    for (const NamedValue& value : NamedValues(shown).list())
      if (const std::string_view name = value.name; Config::may_be_added(name)) kind.added.push_back(flag_name(name));
  }
  return kind;
}

/// Returns the value of --model, or else the default preset; empty if neither exists.
template <class Config>
std::string model_name(const ModelChoice& choice) {
  return config_kind<Config>().model_name(choice);
}

/// Returns the user's choice of a model as text, one value per line, to compare it between ranks.
std::string given_text(const ModelChoice& choice);

/// Returns whether --model is a folder, that is, any name except a preset. Does not access the disk.
template <class Config>
bool is_folder(const ModelChoice& choice) {
  return config_kind<Config>().is_folder(choice);
}

/// Adds --model, --adapter if the config has adapters, and a flag for each value of the config.
void bind_model(FlagSet& flags, ModelChoice& choice, const ConfigKind& kind, const std::vector<NamedValue>& values);
/// The same for a type of config.
template <class Config>
void bind_model(FlagSet& flags, ModelChoice& choice) {
  if constexpr (std::default_initializable<Config>) {
    Config start;
    bind_model(flags, choice, config_kind<Config>(), NamedValues(start).list());
  } else {
    bind_model(flags, choice, config_kind<Config>(), {});
  }
}

/// Returns the values that the user adds to a folder's model. Throws InputError if any other value is given.
GivenValues added_to_folder(const ConfigKind& kind, const std::string& folder, const ModelChoice& choice);
/// Throws InputError if the folder's model already has adapters.
void require_no_adapters(const LoraConfig& adapters, const std::string& folder, const ModelChoice& choice,
                         const GivenValues& added);
/// Throws InputError for a value of adapters if the model will have none: all weights would be trained.
void require_rank(const GivenValues& values);

/// Reads a folder's config and adds the adapters that the user requested.
template <class Config>
Config resolve_folder(const std::string& folder, const ModelChoice& choice) {
  const GivenValues added = added_to_folder(config_kind<Config>(), folder, choice);
  Config config = read_config<Config>(folder, choice.adapter);
  if constexpr (HasAdapters<Config>) {
    if (added.empty()) return config;
    require_no_adapters(config.adapters(), folder, choice, added);
    set_given(config, added);
    config.adapters().base = folder;
    config.validate();
    if (!config.adapters().on()) require_rank(added);
  }
  return config;
}

/// As is_folder, but throws InputError if it is neither folder nor preset, or if --adapter is given for a new model.
bool check_choice(const ConfigKind& kind, const ModelChoice& choice);

/// Returns the validated config: a preset, or a default-constructed config, with the user's values; or a folder's
/// config.json, to which the user can only add adapters. Throws InputError.
template <class Config>
Config resolve_model(const ModelChoice& choice) {
  const ConfigKind kind = config_kind<Config>();
  const std::string name = kind.model_name(choice);
  if (check_choice(kind, choice)) return resolve_folder<Config>(name, choice);
  const auto begin = [&]() -> Config {
    if constexpr (HasPresets<Config>) {
      return Config::preset(name);
    } else if constexpr (std::default_initializable<Config>) {
      return Config();
    } else {
      throw InputError("--model is missing; give a folder with config.json and weights");
    }
  };
  Config config = begin();
  set_given(config, choice.values);
  const GivenByUser changed{choice.values};
  if constexpr (detail::has_follow<Config>()) config.follow(changed);
  config.validate();
  return config;
}

/// Throws InputError if sequences are longer than a folder's config.json allows.
void require_positions(std::int64_t longest, std::int64_t seq_len, const std::string& folder);
/// The same; does nothing if the config has no such limit.
template <class Config>
void require_positions(const Config& config, std::int64_t seq_len, const std::string& folder) {
  if constexpr (HasLongestSequence<Config>) require_positions(config.longest_sequence(), seq_len, folder);
}

/// Returns the model to train. A new model's number of positions is at least --seq-len; a folder's must be.
template <class Model>
Model model_of(const TrainOptions& options) {
  using Config = typename Model::Config;
  Config config = resolve_model<Config>(options.model);
  if (is_folder<Config>(options.model)) {
    require_positions(config, options.seq_len, options.model.name);
  } else if constexpr (HasLongestSequence<Config>) {
    std::int64_t& longest = config.longest_sequence();
    longest = std::max(longest, options.seq_len);
  }
  return Model(config, options.units);
}

}  // namespace fsdp::train
