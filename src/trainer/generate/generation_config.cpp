// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/generation_config.hpp>

#include <filesystem>
#include <string_view>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/checkpoint/strict_json.hpp"
#include "../../fsdp/model_files/json_keys.hpp"

namespace fsdp::train {
namespace {

/// Reads a number or a list of numbers as ids, in the form of --stop-ids.
std::string ids_of(const Keys& keys, const char* key, const std::string& source) {
  const nlohmann::json& value = keys.at(key);
  std::string ids;
  for (const nlohmann::json& id : value.is_array() ? value : nlohmann::json::array({value})) {
    require<InputError>(id.is_number_unsigned(), source, ": \"", key, "\" is ", keys.dump(key),
                        "; it must be a token's id, or a list of such");
    ids += (ids.empty() ? "" : ",") + id.dump();
  }
  return ids;
}

/// Throws InputError for an id beyond the vocabulary that config.json beside the file says: no model draws it, so that
/// nothing would end an answer.
void require_in_vocabulary(const std::string& ids, const char* key, const std::filesystem::path& file) {
  const std::filesystem::path path = file.parent_path() / "config.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return;
  const nlohmann::json config = parse_strict(read_small_file(path, most_config_bytes), path.string());
  if (!config.is_object() || !config.contains("vocab_size") || !config.at("vocab_size").is_number_unsigned()) return;
  const auto vocabulary = config.at("vocab_size").get<std::uint64_t>();
  for (const nlohmann::json& id : nlohmann::json::parse("[" + ids + "]"))
    require<InputError>(id.get<std::uint64_t>() < vocabulary, file.string(), ": \"", key, "\" names token ", id.dump(),
                        ", and the model's vocabulary has ", vocabulary, " tokens; correct it, or give --stop-ids");
}

class Reading {
 public:
  Reading(const FlagSet& flags, GenerateOptions& options, const nlohmann::json& object,
          const std::filesystem::path& file, const std::string& source)
      : flags_(flags), options_(options), keys_(object, source), file_(file), source_(source) {}

  void number(const char* key, const char* flag, double& value) {
    if (wants(key, flag)) say(flag, message(value = keys_.number(key)));
  }
  void integer(const char* key, const char* flag, std::int64_t& value) {
    if (wants(key, flag)) say(flag, message(value = keys_.integer(key)));
  }
  void all() {
    GenerateOptions& o = options_;
    if (!keys_.boolean("do_sample", true, Null::absent) && !flags_.is_given("temperature")) {
      o.sampling.temperature = 0;
      say("temperature", "0");
    } else {
      number("temperature", "temperature", o.sampling.temperature);
    }
    integer("top_k", "top-k", o.sampling.top_k);
    number("top_p", "top-p", o.sampling.top_p);
    number("min_p", "min-p", o.sampling.min_p);
    number("repetition_penalty", "repetition-penalty", o.sampling.repetition_penalty);
    if (!wants("eos_token_id", "stop-ids")) return;
    const std::string ids = ids_of(keys_, "eos_token_id", source_);
    if (ids.empty()) return;
    require_in_vocabulary(ids, "eos_token_id", file_);
    o.stop_ids = {ids};
    say("stop-ids", ids);
  }
  const std::string& said() const { return said_; }

 private:
  bool wants(const char* key, const char* flag) const { return keys_.has(key) && !flags_.is_given(flag); }
  void say(const char* flag, const std::string& value) {
    said_ += (said_.empty() ? "" : ", ") + std::string(flag) + " " + value;
  }

  const FlagSet& flags_;
  GenerateOptions& options_;
  std::string said_;
  Keys keys_;
  const std::filesystem::path& file_;
  const std::string& source_;
};

}  // namespace

std::string apply_generation_config(const FlagSet& flags, GenerateOptions& options) {
  const std::filesystem::path path = std::filesystem::path(options.model) / "generation_config.json";
  std::error_code error;  // a broken link counts as a file, so that reading it fails
  if (std::filesystem::symlink_status(path, error).type() == std::filesystem::file_type::not_found) return {};
  const std::string source = path.string();
  const nlohmann::json object = parse_strict(read_small_file(path, most_config_bytes), source);
  require<InputError>(object.is_object(), source, ": this is no JSON object");
  Reading reading(flags, options, object, path, source);
  reading.all();
  try {
    validate_sampling(flags, options);
  } catch (const InputError& wrong) {
    throw InputError(message(source, " says ", reading.said(), ": ", wrong.what()));
  }
  return reading.said();
}

}  // namespace fsdp::train
