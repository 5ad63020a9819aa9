// SPDX-License-Identifier: Apache-2.0
#include "trainer_state.hpp"

#include <array>
#include <string_view>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>

#include "../core/utf8.hpp"
#include "strict_json.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t state_version = 2;
constexpr std::int64_t most_bytes = 65536;  ///< of the file

/// Visits the signed numbers of trainer.json; the unsigned seed is handled separately. `position`: with those of a
/// trainer's position in its data, which other programs do not have.
template <class File, class Visit>
void for_each_number(File& file, bool position, Visit visit) {
  visit("step", file.state.step);
  if (position) {
    visit("tokens", file.state.tokens);
    visit("epoch", file.state.epoch);
    visit("index", file.state.index);
    visit("windows", file.state.windows);
    visit("seq_len", file.state.seq_len);
    visit("schedule_steps", file.state.schedule_steps);
  }
  visit("skipped_steps", file.state.skipped_steps);
}
/// Whether a trainer wrote it: one has windows of a sequence length.
bool has_position(const TrainerState& state) { return state.seq_len > 0; }

/// Throws InputError unless JSON can hold the run's own values: all of it is UTF-8.
void require_texts(const std::map<std::string, std::string>& run) {
  for (const auto& [name, value] : run)
    require<InputError>(
        is_utf8(name) && is_utf8(value), "checkpoint: the run's own value \"", shortened(name),
        "\" is not UTF-8; encode it as text, such as hexadecimal digits, or keep it in a file of your own");
}

}  // namespace

std::string hash_of(std::span<const NamedShape> parameters) {
  std::uint64_t hash = hash_seed;
  for (const NamedShape& parameter : parameters)
    hash = hashed(hashed(hash, parameter.name), shape_text(parameter.shape));
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[(hash >> shift) & 15];
  return text;
}

std::string to_json(const TrainerFile& file) {
  require_texts(file.state.run);
  nlohmann::ordered_json object = {
      {"format_version", state_version}, {"sizes_hash", file.sizes_hash}, {"optimizer", file.optimizer}};
  const bool position = has_position(file.state);
  if (position) object["seed"] = file.state.seed;
  for_each_number(file, position, [&](const char* key, std::int64_t value) { object[key] = value; });
  if (const auto& scale = file.state.loss_scale)
    object["loss_scale"] = {{"scale", scale->scale}, {"sound_steps", scale->sound_steps}};
  if (const auto& best = file.state.best)
    object["best"] = {{"loss", best->loss}, {"step", best->step}, {"worse", best->worse}};
  if (!file.state.taken.empty()) object["taken"] = file.state.taken;
  if (!file.state.run.empty()) object["run"] = file.state.run;
  std::string text = object.dump(2) + "\n";
  require<InputError>(std::ssize(text) <= most_bytes, "checkpoint: the run's own values take ", text.size(),
                      " bytes of trainer.json, which holds ", most_bytes, "; keep large ones in files of your own");
  return text;
}

TrainerFile read_trainer_file(const std::filesystem::path& path, const std::optional<Manifest>& manifest) {
  const std::string source = path.string();
  const std::string text = read_small_file(path, most_bytes);
  if (manifest) check_content(*manifest, path, text);
  const nlohmann::json object = parse_strict(text, source);
  require<InputError>(object.is_object(), source, ": not a JSON object");
  const auto number = [&](const char* key) {
    require<InputError>(object.contains(key) && object.at(key).is_number_unsigned(), source, ": \"", key,
                        "\" must be a whole number that is not negative");
    return object.at(key).get<std::uint64_t>();
  };
  const std::uint64_t version = number("format_version");
  require<InputError>(version == 1 || version == state_version, source, ": format version ", version,
                      "; this program reads versions 1 and ", state_version);
  TrainerFile file;
  file.has_manifest = version > 1;
  std::size_t keys = 2;
  const bool position = object.contains("seq_len") || object.contains("seed");
  if (position) {
    file.state.seed = number("seed");
    ++keys;
  }
  for_each_number(file, position, [&](const char* key, std::int64_t& value) {
    const std::uint64_t stored = number(key);
    require<InputError>(stored <= INT64_MAX, source, ": \"", key, "\" is too large");
    value = static_cast<std::int64_t>(stored);
    ++keys;
  });
  require<InputError>(object.contains("sizes_hash") && object.at("sizes_hash").is_string(), source,
                      ": \"sizes_hash\" must be a string");
  file.sizes_hash = object.at("sizes_hash").get<std::string>();
  if (object.contains("optimizer")) {
    require<InputError>(object.at("optimizer").is_string(), source, ": \"optimizer\" must be a string");
    file.optimizer = object.at("optimizer").get<std::string>();
    ++keys;
  }
  if (object.contains("loss_scale")) {
    const auto& scale = object.at("loss_scale");
    const bool sound = scale.is_object() && scale.size() == 2 && scale.contains("scale") &&
                       scale.at("scale").is_number() && scale.contains("sound_steps") &&
                       scale.at("sound_steps").is_number_unsigned() &&
                       scale.at("sound_steps").get<std::uint64_t>() <= INT64_MAX;
    require<InputError>(sound, source, ": \"loss_scale\" must hold a scale and a number of sound_steps");
    file.state.loss_scale = {.scale = scale.at("scale").get<double>(),
                             .sound_steps = scale.at("sound_steps").get<std::int64_t>()};
    ++keys;
  }
  if (object.contains("best")) {
    const auto& best = object.at("best");
    const auto count = [&](const char* key) {
      return best.contains(key) && best.at(key).is_number_unsigned() && best.at(key).get<std::uint64_t>() <= INT64_MAX;
    };
    const bool sound = best.is_object() && best.size() == 3 && best.contains("loss") && best.at("loss").is_number() &&
                       count("step") && count("worse");
    require<InputError>(sound, source, ": \"best\" must hold a loss, a step and a number of worse ones");
    file.state.best = {.loss = best.at("loss").get<double>(),
                       .step = best.at("step").get<std::int64_t>(),
                       .worse = best.at("worse").get<std::int64_t>()};
    ++keys;
  }
  require<InputError>(file.state.skipped_steps <= file.state.step, source, ": ", file.state.skipped_steps,
                      " skipped_steps of ", file.state.step, " steps");
  if (object.contains("taken")) {
    const auto& taken = object.at("taken");
    require<InputError>(taken.is_array(), source, ": \"taken\" must hold numbers of steps");
    for (const auto& count : taken) {
      require<InputError>(count.is_number_unsigned() && count.get<std::uint64_t>() <= INT64_MAX, source,
                          ": \"taken\" must hold numbers of steps");
      file.state.taken.push_back(count.get<std::int64_t>());
    }
    ++keys;
  }
  if (object.contains("run")) {
    require<InputError>(object.at("run").is_object(), source, ": \"run\" must hold texts");
    for (const auto& [name, value] : object.at("run").items()) {
      require<InputError>(value.is_string(), source, ": \"run\" must hold texts, and \"", name, "\" is none");
      file.state.run[name] = value.get<std::string>();
    }
    ++keys;
  }
  require<InputError>(object.size() == keys, source, ": has ", object.size(), " keys where ", keys, " are known");
  return file;
}

}  // namespace fsdp::checkpoint
