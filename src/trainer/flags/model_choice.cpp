// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/model_choice.hpp>

#include <utility>

#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/paths.hpp"

namespace fsdp::train {
namespace {

std::string flags_of(const GivenValues& values) {
  std::string text;
  for (const auto& [flag, value] : values) text += (text.empty() ? "--" : ", --") + flag;
  return text;
}

}  // namespace

std::string ConfigKind::model_name(const ModelChoice& choice) const {
  return has_presets && choice.name.empty() ? default_preset : choice.name;
}

bool ConfigKind::is_folder(const ModelChoice& choice) const {
  const std::string name = model_name(choice);
  return has_presets ? std::ranges::count(presets, name) == 0 : !name.empty();
}

std::string given_text(const ModelChoice& choice) {
  std::string text = message("model = \"", choice.name, "\"\nadapter = \"", choice.adapter, "\"\n");
  for (const auto& [flag, value] : choice.values) text += message(flag, " = ", value, "\n");
  return text;
}

void bind_model(FlagSet& flags, ModelChoice& choice, const ConfigKind& kind, const std::vector<NamedValue>& values) {
  std::string help = "folder with config.json and weights", instead;
  if (kind.has_presets) {
    std::string names;
    for (const std::string& name : kind.presets) names += (names.empty() ? "" : ", ") + name;
    help = message("preset (", names, "), or a ", help);
    instead = ", instead of the preset's";
  } else {
    help += "; left out: a new model of the sizes given";
  }
  flags.add(Effect::chosen, "model", choice.name, help).get = [&choice, kind] {
    const std::string name = kind.model_name(choice);
    return name.empty() ? std::vector<std::string>() : std::vector{name};
  };
  if (kind.has_adapters)
    flags.add(Effect::chosen, "adapter", choice.adapter,
              "folder of adapters, as PEFT writes it, for the model of --model's folder");
  for (const NamedValue& value : values) {
    const bool of_preset = kind.has_presets && std::ranges::count(kind.added, flag_name(value.name)) == 0;
    flags.add_given(value, choice.values, value.help + (of_preset ? instead : message(" (", to_text(value), ")")));
  }
}

GivenValues added_to_folder(const ConfigKind& kind, const std::string& folder, const ModelChoice& choice) {
  GivenValues added, changing = choice.values;
  for (const std::string& flag : kind.added)
    if (auto value = changing.extract(flag); !value.empty()) added.insert(std::move(value));
  require<InputError>(changing.empty(), "--model ", folder, " is a folder whose config.json gives all sizes; drop ",
                      flags_of(changing));
  return added;
}

void require_no_adapters(const LoraConfig& adapters, const std::string& folder, const ModelChoice& choice,
                         const GivenValues& added) {
  require<InputError>(!adapters.on(), choice.adapter.empty() ? "--model " : "--adapter ",
                      choice.adapter.empty() ? folder : choice.adapter, " has adapters, which say all of them; drop ",
                      flags_of(added));
}

void require_rank(const GivenValues& values) {
  for (const auto& [flag, value] : values)
    require<InputError>(flag == "lora-rank" || !flag.starts_with("lora-"), "--", flag,
                        " is for LoRA, and --lora-rank is 0; give a rank, or leave it out");
}

bool check_choice(const ConfigKind& kind, const ModelChoice& choice) {
  if (kind.is_folder(choice)) {
    const std::string name = kind.model_name(choice);
    require_no_file(name);
    require<InputError>(!kind.has_presets || folder_exists(name), "--model ", shortened(name, 400),
                        " is neither a preset nor a folder; ", suggestion(name, kind.presets),
                        ", or a folder with config.json and weights");
    return true;
  }
  require<InputError>(choice.adapter.empty(), "--adapter ", choice.adapter,
                      " is for a folder's model; give that folder by --model");
  const auto rank = choice.values.find("lora-rank");
  if (kind.has_adapters && (rank == choice.values.end() || rank->second == "0")) require_rank(choice.values);
  return false;
}

void require_positions(std::int64_t longest, std::int64_t seq_len, const std::string& folder) {
  require<InputError>(seq_len <= longest, "--seq-len ", seq_len, " is longer than the ", longest,
                      " positions of --model ", folder, "; shorten it, or raise their number in its config.json");
}

}  // namespace fsdp::train
