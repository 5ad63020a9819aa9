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
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>
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

/// What --model says, or the default preset; empty where neither is there.
template <class Config>
std::string model_name(const ModelChoice& choice) {
  if constexpr (HasPresets<Config>)
    return choice.name.empty() ? std::string(Config::default_preset) : choice.name;
  else
    return choice.name;
}

/// Whether --model names a folder with weights.
template <class Config>
bool is_folder(const ModelChoice& choice) {
  const std::string name = model_name<Config>(choice);
  if constexpr (HasPresets<Config>) {
    const std::vector<std::string> presets = Config::preset_names();
    return std::find(presets.begin(), presets.end(), name) == presets.end();
  } else {
    return !name.empty();
  }
}

/// Whether a value adds to a model and changes none of its weights, so that a folder's may be given it as well.
template <class Config>
bool is_added(std::string_view name) {
  if constexpr (HasAdapters<Config>)
    return Config::may_be_added(name);
  else
    return false;
}

/// --model and a flag for each value of the config.
template <class Config>
void bind_model(FlagSet& flags, ModelChoice& choice) {
  const auto name_of = [&choice] {
    const std::string name = model_name<Config>(choice);
    return name.empty() ? std::vector<std::string>() : std::vector{name};
  };
  std::string help = "folder with config.json and weights", instead;
  if constexpr (HasPresets<Config>) {
    std::string names;
    for (const std::string& name : Config::preset_names()) names += (names.empty() ? "" : ", ") + name;
    help = message("preset (", names, "), or a ", help);
    instead = ", instead of the preset's";
  } else {
    help += "; left out: a new model of the sizes given";
  }
  flags.add({.name = "model",
             .help = help,
             .kind = FlagKind::text,
             .set = [&choice](const auto& texts) { choice.name = FlagSet::single("model", texts); },
             .get = name_of});
  if constexpr (HasAdapters<Config>)
    flags.add("adapter", choice.adapter, "folder of adapters, as PEFT writes it, for the model of --model's folder");
  if constexpr (std::default_initializable<Config>) {
    const Config start;
    Config::visit(start, [&]<class T>(std::string_view name, const T& value, std::string_view text) {
      const std::string present =
          HasPresets<Config> && !is_added<Config>(name) ? instead : message(" (", to_text(value), ")");
      flags.add_given<T>(flag_name(name), choice.values, std::string(text) + present);
    });
  }
}

/// A folder's config, with the adapters that were asked for.
template <class Config>
Config resolve_folder(const std::string& folder, const ModelChoice& choice) {
  GivenValues added, changing = choice.values;
  if constexpr (HasAdapters<Config>) {
    const Config shown;
    Config::visit(shown, [&](std::string_view name, const auto&, std::string_view) {
      if (is_added<Config>(name))
        if (auto value = changing.extract(flag_name(name)); !value.empty()) added.insert(std::move(value));
    });
  }
  const auto flags_of = [](const GivenValues& values) {
    std::string text;
    for (const auto& [flag, value] : values) text += (text.empty() ? "--" : ", --") + flag;
    return text;
  };
  require<InputError>(changing.empty(), "--model ", folder, " is a folder whose config.json gives all sizes; drop ",
                      flags_of(changing));
  Config config = read_config<Config>(folder, choice.adapter);
  if constexpr (HasAdapters<Config>) {
    if (added.empty()) return config;
    require<InputError>(!config.adapters().on(), choice.adapter.empty() ? "--model " : "--adapter ",
                        choice.adapter.empty() ? folder : choice.adapter, " has adapters, which say all of them; drop ",
                        flags_of(added));
    set_given(config, added);
    config.adapters().base = folder;
    config.validate();
    require<InputError>(config.adapters().on(), flags_of(added), ": give --lora-rank, too");
  }
  return config;
}

/// The config: a preset or the default with the values that were given, or a folder's config.json, which takes none but
/// those of adapters. Validated.
template <class Config>
Config resolve_model(const ModelChoice& choice) {
  const std::string name = model_name<Config>(choice);
  if (is_folder<Config>(choice)) {
    std::error_code error;
    if constexpr (HasPresets<Config>)
      require<InputError>(std::filesystem::is_directory(name, error), "--model ", name,
                          " is neither a preset nor a folder; ", suggestion(name, Config::preset_names()),
                          ", or a folder with config.json and weights");
    return resolve_folder<Config>(name, choice);
  }
  require<InputError>(choice.adapter.empty(), "--adapter ", choice.adapter,
                      " is for a folder's model; give that folder by --model");
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
  const auto changed = [&](std::string_view value) { return choice.values.count(flag_name(value)) > 0; };
  if constexpr (requires { config.follow(changed); }) config.follow(changed);
  config.validate();
  return config;
}

/// Throws InputError where sequences are longer than those that a folder's config.json allows.
template <class Config>
void require_positions(const Config& config, std::int64_t seq_len, const std::string& folder) {
  if constexpr (HasLongestSequence<Config>)
    require<InputError>(seq_len <= config.longest_sequence(), "--seq-len ", seq_len, " is longer than the ",
                        config.longest_sequence(), " positions of --model ", folder,
                        "; shorten it, or raise their number in its config.json");
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
