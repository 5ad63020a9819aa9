// SPDX-License-Identifier: Apache-2.0
/// @file
/// PEFT's adapter_config.json, with the keys of LoraConfig in PEFT 0.21.
#include <tessera/fsdp/models/lora_config.hpp>

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"
#include "../core/strings.hpp"

namespace fsdp {
namespace {

using nlohmann::json;

/// Keys that are read below, and keys that do not affect the computation for given weights.
constexpr std::string_view peft_keys =
    "peft_type task_type r lora_alpha lora_dropout use_rslora target_modules bias base_model_name_or_path "
    "init_lora_weights inference_mode revision auto_mapping peft_version qalora_group_size megatron_core "
    "ensure_weight_tying runtime_config";

/// Initialisations that change the base weights: the adapters are valid only for the changed weights.
constexpr std::array changing_starts = {"pissa", "olora", "corda", "loftq", "lora_ga"};

/// Writes an integral number without a fraction, as PEFT does.
json whole_if_so(double number) {
  return number == std::floor(number) ? json(static_cast<std::int64_t>(number)) : json(number);
}

bool has_no_effect(const json& value) {
  return value.is_null() || value == json(false) || ((value.is_object() || value.is_array()) && value.empty());
}

std::string targets_of(const Keys& keys) {
  const std::string& source = keys.source();
  const bool names_none = !keys.has("target_modules") || keys.at("target_modules").empty();
  require<InputError>(!names_none || !keys.has("target_parameters") || keys.at("target_parameters").empty(), source,
                      ": \"target_parameters\" is ",
                      keys.has("target_parameters") ? keys.dump("target_parameters") : "",
                      ", and no module is named; adapters of parameters are not read, only those of modules, which "
                      "\"target_modules\" names");
  require<InputError>(keys.given("target_modules"), source, ": \"target_modules\" is missing");
  require<InputError>(keys.has("target_modules"), source, ": \"target_modules\" is null; it must be a list of names");
  const json& modules = keys.at("target_modules");
  if (modules == "all-linear") return "*";
  require<InputError>(!modules.is_string(), source, ": \"target_modules\" is the regular expression ",
                      keys.dump("target_modules"), "; give a list of names, which PEFT reads as well");
  std::string targets;
  for (const json& module : modules) {
    require<InputError>(modules.is_array() && module.is_string() && !module.get_ref<const std::string&>().empty() &&
                            module.get_ref<const std::string&>().find_first_of("*?[\\,") == std::string::npos,
                        source, ": \"target_modules\" is ", keys.dump("target_modules"),
                        "; it must be a list of names");
    targets += (targets.empty() ? "" : ",") + module.get<std::string>();
  }
  require<InputError>(!targets.empty(), source, ": \"target_modules\" names nothing");
  return targets;
}

}  // namespace

LoraConfig LoraConfig::parse(std::string_view text, const std::string& source) {
  json object = parse_strict(text, source);
  const Keys keys(object, source);
  require<InputError>(keys.given("peft_type"), source, ": the key \"peft_type\" is missing; this must be \"LORA\"");
  keys.expect("peft_type", "LORA");
  keys.expect("task_type", "CAUSAL_LM", Null::absent);
  keys.expect("bias", "none");
  const json start = keys.has("init_lora_weights") ? keys.at("init_lora_weights") : json(true);
  for (const char* const changing : changing_starts)
    require<InputError>(!start.is_string() || !start.get<std::string>().starts_with(changing), source,
                        ": \"init_lora_weights\" is ", start.dump(),
                        ", which changed the base's weights; convert it to a plain LoRA with PEFT first");
  LoraConfig config{.rank = keys.integer("r"),
                    .alpha = keys.number("lora_alpha"),
                    .dropout = keys.number("lora_dropout", 0),
                    .rslora = keys.boolean("use_rslora", false, Null::absent),
                    .targets = targets_of(keys),
                    .base = keys.text("base_model_name_or_path", "", Null::absent)};
  require<InputError>(config.on(), source, ": \"r\" is 0");
  prefixed(source + ": ", [&] { config.validate(); });
  const std::vector<std::string_view> known = split_at(peft_keys, ' ');
  for (const auto& [key, value] : object.items())
    require<InputError>(
        std::ranges::find(known, key) != known.end() || has_no_effect(value), source, ": \"", shortened(key), "\" is ",
        keys.dump(key.c_str()),
        ", which this program does not know; adapters of one rank beside frozen projections are read, without ",
        "biases, patterns of ranks or modules that were trained whole");
  return config;
}

LoraConfig LoraConfig::read(const std::filesystem::path& folder) {
  require_folder(folder);
  const std::filesystem::path path = folder / "adapter_config.json";
  return parse(read_small_file(path, most_config_bytes), path.string());
}

std::string LoraConfig::write(const std::vector<std::string>& modules, const std::vector<std::string>& others) const {
  const auto kind = [](const std::string& name) { return name.substr(name.rfind('.') + 1); };
  std::map<std::string, bool> whole;  // kinds of projections, and whether all projections of the kind have adapters
  for (const std::string& name : modules) whole[kind(name)] = true;
  for (const std::string& name : others)
    if (const auto found = whole.find(kind(name)); found != whole.end()) found->second = false;
  json names = json::array();
  for (const auto& [name, all] : whole)
    if (all) names.push_back(name);
  for (const std::string& name : modules)
    if (!whole.at(kind(name))) names.push_back(name);
  const nlohmann::ordered_json object = {{"peft_type", "LORA"},
                                         {"task_type", "CAUSAL_LM"},
                                         {"base_model_name_or_path", base.empty() ? json() : json(base)},
                                         {"r", rank},
                                         {"lora_alpha", whole_if_so(alpha)},
                                         {"lora_dropout", dropout},
                                         {"use_rslora", rslora},
                                         {"target_modules", names},
                                         {"bias", "none"},
                                         {"fan_in_fan_out", false},
                                         {"init_lora_weights", true},
                                         {"inference_mode", true},
                                         {"modules_to_save", nullptr},
                                         {"rank_pattern", json::object()},
                                         {"alpha_pattern", json::object()}};
  return object.dump(2) + "\n";
}

LoraConfig read_adapters(const LoraConfig& present, const std::filesystem::path& folder,
                         const std::filesystem::path& adapter) {
  require<InputError>(!present.on(), adapter.string(), ": the model of ", folder.string(),
                      " has adapters of its own; export it with them merged first");
  LoraConfig adapters = LoraConfig::read(adapter);
  adapters.base = folder.string();
  return adapters;
}

}  // namespace fsdp
