// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/model_folder.hpp>

#include <algorithm>
#include <mutex>
#include <set>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/tokenizer_config.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/strings.hpp"

namespace fsdp::train {

std::optional<std::filesystem::path> tokenizer_of(const std::string& tokenizer, const std::string& model_folder) {
  if (!tokenizer.empty()) return text::tokenizer_at(tokenizer);
  if (!std::filesystem::is_directory(model_folder)) return std::nullopt;
  return text::find_tokenizer(model_folder);
}

void require_vocabulary(const text::Tokenizer& tokenizer, const std::filesystem::path& file, std::int64_t vocabulary) {
  require<InputError>(tokenizer.vocabulary_size() <= vocabulary, file.string(), " has token ids up to ",
                      tokenizer.vocabulary_size() - 1, ", and the model knows ", vocabulary,
                      " tokens; take the model's own tokenizer, or a new model with --vocab ",
                      tokenizer.vocabulary_size());
}

std::vector<std::int32_t> unsampled_ids(const text::Tokenizer& tokenizer, std::int64_t vocabulary,
                                        std::span<const std::int32_t> stops) {
  std::vector<std::int32_t> ids;
  for (const text::TokenId id : tokenizer.ids_without_token(vocabulary))
    if (std::ranges::find(stops, static_cast<std::int32_t>(id)) == stops.end())
      ids.push_back(static_cast<std::int32_t>(id));
  return ids;
}

void warn_of(const text::Tokenizer& tokenizer) {
  static std::mutex mutex;
  static std::set<std::string> printed;
  const std::lock_guard lock(mutex);
  for (const std::string& warning : tokenizer.warnings())
    if (printed.insert(warning).second) print_warning(warning);
}

void warn_of(const text::ChatFormat& format) {
  warn_of(format.tokenizer());
  for (const std::string& warning : format.warnings()) print_warning(warning);
}

namespace {

/// Reads a number or a list of numbers as ids, in the form of --stop-ids.
std::string ids_of(const Keys& keys, const char* key) {
  const nlohmann::json& value = keys.at(key);
  std::string ids;
  for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
    require<InputError>(id.is_number_unsigned(), keys.source(), ": \"", key, "\" is ", keys.dump(key),
                        "; it must be a token's id, or a list of such");
    ids += (ids.empty() ? "" : ",") + json_text(id);
  }
  return ids;
}

/// Throws InputError for an id outside the vocabulary in the config.json next to the file: a model cannot sample it, so
/// that nothing would end an answer.
void require_in_vocabulary(const std::string& ids, const char* key, const std::filesystem::path& file) {
  const std::filesystem::path path = file.parent_path() / "config.json";
  if (!path_exists(path)) return;
  const nlohmann::json config = parse_strict(read_small_file(path, most_config_bytes), path.string());
  const std::optional<std::uint64_t> vocabulary = value_at<std::uint64_t>(config, "vocab_size");
  if (!vocabulary) return;
  for (const std::string_view id : split_at(ids, ','))  // an empty list is one empty text
    require<InputError>(id.empty() || parsed<std::uint64_t>(id).value() < *vocabulary, file.string(), ": \"", key,
                        "\" names token ", id, ", and the model's vocabulary has ", *vocabulary,
                        " tokens; correct it, or give --stop-ids");
}

}  // namespace

std::string apply_generation_config(const FlagSet& flags, GenerateOptions& options) {
  const std::filesystem::path path = std::filesystem::path(options.model) / "generation_config.json";
  if (!entry_exists(path)) return {};
  const std::string source = path.string();
  const nlohmann::json object = parse_strict(read_small_file(path, most_config_bytes), source);
  const Keys keys(object, source);
  std::string said;
  const auto wants = [&](const char* key, const char* flag) { return keys.has(key) && !flags.is_given(flag); };
  const auto say = [&](const char* flag, const std::string& value) {
    said += (said.empty() ? "" : ", ") + std::string(flag) + " " + value;
  };
  const auto number = [&](const char* key, const char* flag, double& value) {
    if (wants(key, flag)) say(flag, message(value = keys.number(key)));
  };
  if (!keys.boolean("do_sample", true, Null::absent) && !flags.is_given("temperature")) {
    options.sampling.temperature = 0;
    say("temperature", "0");
  } else {
    number("temperature", "temperature", options.sampling.temperature);
  }
  if (wants("top_k", "top-k")) say("top-k", message(options.sampling.top_k = keys.integer("top_k")));
  number("top_p", "top-p", options.sampling.top_p);
  number("min_p", "min-p", options.sampling.min_p);
  number("repetition_penalty", "repetition-penalty", options.sampling.repetition_penalty);
  const std::string ids = wants("eos_token_id", "stop-ids") ? ids_of(keys, "eos_token_id") : "";
  if (!ids.empty()) {
    require_in_vocabulary(ids, "eos_token_id", path);
    options.stop_ids = {ids};
    say("stop-ids", ids);
  }
  prefixed(message(source, " says ", said, ": "), [&] { validate_sampling(flags, options); });
  return said;
}

}  // namespace fsdp::train
