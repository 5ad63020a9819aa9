// SPDX-License-Identifier: Apache-2.0
/// @file
/// From `--model` and the flags of its sizes to a model: nothing here knows which.
///
/// Every value that `Config::visit` shows is a flag (flag_name in flag_set.hpp). A config may have more:
/// - `preset_names()`, `preset(name)` and `default_preset`, then `--model` takes those names as well as folders;
/// - `longest_sequence()`, const and not, a reference to the most tokens that a sequence may have;
/// - `follow(changed)`, called after values were given, where changed(name) says whether this one was;
/// - `adapters()`, const and not, a LoraConfig, and `may_be_added(name)`: whether a value may be given to a folder's
///   model, since it adds to the weights and changes none.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/core/named_values.hpp>
#include <fsdp/models/lora_config.hpp>
#include <fsdp/train/flag_set.hpp>
#include <fsdp/train/options.hpp>

namespace fsdp::train {

/// A config that has presets: --model takes their names.
template <class Config>
concept HasPresets = requires(std::string_view name) {
  { Config::preset_names() } -> std::same_as<std::vector<std::string>>;
  { Config::preset(name) } -> std::same_as<Config>;
  { Config::default_preset } -> std::convertible_to<std::string_view>;
};

/// A config that says how long a sequence may be: --seq-len is compared with it.
template <class Config>
concept HasLongestSequence = requires(Config changed, const Config config) {
  { changed.longest_sequence() } -> std::same_as<std::int64_t&>;
  { config.longest_sequence() } -> std::convertible_to<std::int64_t>;
};

/// What `--model` and its flags must know of a type of config.
struct ConfigKind {
  bool has_presets = false;
  std::vector<std::string> presets = {};
  std::string default_preset = {};
  bool has_adapters = false;
  /// Flags of values that add to a model and change none of its weights, so that a folder's may be given them as well.
  std::vector<std::string> added = {};
};

/// Flags of the values that `may_be_added` names.
std::vector<std::string> added_flags(const NamedValues& values, bool (*may_be_added)(std::string_view));

/// That of a type of config.
template <class Config>
ConfigKind config_kind() {
  ConfigKind kind{.has_presets = HasPresets<Config>, .has_adapters = HasAdapters<Config>};
  if constexpr (HasPresets<Config>) {
    kind.presets = Config::preset_names();
    kind.default_preset = std::string_view(Config::default_preset);
  }
  if constexpr (HasAdapters<Config>) {
    Config shown;
    kind.added = added_flags(shown, [](std::string_view name) -> bool { return Config::may_be_added(name); });
  }
  return kind;
}

/// What --model says, or the default preset; empty where neither is there.
std::string model_name(const ConfigKind& kind, const ModelChoice& choice);
/// @copydoc model_name(const ConfigKind&, const ModelChoice&)
template <class Config>
std::string model_name(const ModelChoice& choice) {
  return model_name(config_kind<Config>(), choice);
}

/// The model that was asked for, a line for each value.
std::string given_text(const ModelChoice& choice);

/// Whether --model names a folder with weights.
bool is_folder(const ConfigKind& kind, const ModelChoice& choice);
/// @copydoc is_folder(const ConfigKind&, const ModelChoice&)
template <class Config>
bool is_folder(const ModelChoice& choice) {
  return is_folder(config_kind<Config>(), choice);
}

/// --model and a flag for each value of the config.
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

/// What is given to a folder's model. Throws InputError where that is more than values of adapters.
GivenValues added_to_folder(const ConfigKind& kind, const std::string& folder, const ModelChoice& choice);
/// Throws InputError where values of adapters are added to a model that has them, or that has none behind it.
/// @{
void require_no_adapters(const LoraConfig& adapters, const std::string& folder, const ModelChoice& choice,
                         const GivenValues& added);
void require_adapters(const LoraConfig& adapters, const GivenValues& added);
/// @}

/// A folder's config, with the adapters that were asked for.
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
    require_adapters(config.adapters(), added);
  }
  return config;
}

/// Whether --model names a folder, as is_folder. Throws InputError where it is neither that nor a preset, and where
/// adapters are given to a new model.
bool check_choice(const ConfigKind& kind, const ModelChoice& choice);

/// Of a config's values.
struct WasGiven {
  const GivenValues& values;
  /// Whether the one of this name was given.
  bool operator()(std::string_view name) const;
};

/// The config: a preset or the default with the values that were given, or a folder's config.json, which takes none but
/// those of adapters. Validated.
template <class Config>
Config resolve_model(const ModelChoice& choice) {
  const ConfigKind kind = config_kind<Config>();
  const std::string name = model_name(kind, choice);
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
  const WasGiven changed{choice.values};
  if constexpr (requires { config.follow(changed); }) config.follow(changed);
  config.validate();
  return config;
}

/// Throws InputError where sequences are longer than those that a folder's config.json allows.
void require_positions(std::int64_t longest, std::int64_t seq_len, const std::string& folder);
/// The same, where a config has such a bound.
template <class Config>
void require_positions(const Config& config, std::int64_t seq_len, const std::string& folder) {
  if constexpr (HasLongestSequence<Config>) require_positions(config.longest_sequence(), seq_len, folder);
}

/// The model for sequences of --seq-len: a new one's number of positions grows to it, a folder's must hold it.
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
