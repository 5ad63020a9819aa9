// SPDX-License-Identifier: Apache-2.0
#include <fsdp/text/tokenizer_config.hpp>

#include <system_error>

#include <fsdp/core/error.hpp>

#include "../models/strict_json.hpp"

namespace fsdp::text {
namespace {

constexpr std::int64_t most_tokenizer_config_bytes = 10'000'000;  // with chat templates and the added tokens once more
constexpr JsonLimits config_limits{.text = 1'000'000};

constexpr const char* config_name = "tokenizer_config.json";

/// The tokenizer_config.json beside a tokenizer.json; an empty object where there is none.
nlohmann::json config_beside(const std::filesystem::path& tokenizer) {
  const std::filesystem::path file = tokenizer.parent_path() / config_name;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return nlohmann::json::object();
  nlohmann::json root = parse_strict(read_small_file(file, most_tokenizer_config_bytes), file.string(), config_limits);
  require<InputError>(root.is_object(), file.string(), ": is not an object");
  return root;
}

}  // namespace

std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return path;
  const std::filesystem::path file = path / "tokenizer.json";
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  return file;
}

std::filesystem::path tokenizer_at(const std::filesystem::path& path) {
  const std::optional<std::filesystem::path> found = find_tokenizer(path);
  require<InputError>(found.has_value(), "--tokenizer ", path.string(), " holds no tokenizer.json");
  return *found;
}

std::map<std::string, std::string> special_tokens_beside(const std::filesystem::path& tokenizer) {
  const std::filesystem::path file = tokenizer.parent_path() / config_name;
  const nlohmann::json root = config_beside(tokenizer);
  std::map<std::string, std::string> tokens;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
    const auto found = root.find(name);
    if (found == root.end() || found->is_null()) continue;
    const bool is_token = found->is_object() && found->contains("content") && found->at("content").is_string();
    require<InputError>(is_token || found->is_string(), file.string(), ": \"", name,
                        "\" is neither a text nor an object with \"content\"");
    tokens[name] = is_token ? found->at("content").get<std::string>() : found->get<std::string>();
  }
  return tokens;
}

std::optional<std::string> end_token_beside(const std::filesystem::path& tokenizer) {
  const std::map<std::string, std::string> tokens = special_tokens_beside(tokenizer);
  const auto found = tokens.find("eos_token");
  return found == tokens.end() ? std::nullopt : std::optional(found->second);
}

std::optional<NamedText> chat_template_beside(const std::filesystem::path& tokenizer) {
  std::error_code error;
  const std::filesystem::path jinja = tokenizer.parent_path() / "chat_template.jinja";
  if (std::filesystem::exists(jinja, error)) {
    return NamedText{.name = jinja.string(), .text = read_small_file(jinja, most_tokenizer_config_bytes)};
  }
  const std::filesystem::path file = tokenizer.parent_path() / config_name;
  const nlohmann::json root = config_beside(tokenizer);
  const auto found = root.find("chat_template");
  if (found == root.end() || found->is_null()) return std::nullopt;
  const std::string name = file.string() + ", chat_template";
  if (found->is_string()) return NamedText{.name = name, .text = found->get<std::string>()};
  require<InputError>(found->is_array(), name, ": is neither a text nor a list of templates");
  for (const nlohmann::json& one : *found) {
    const bool is_default = one.is_object() && one.value("name", nlohmann::json()) == "default" &&
                            one.contains("template") && one.at("template").is_string();
    if (is_default) return NamedText{.name = name, .text = one.at("template").get<std::string>()};
  }
  throw InputError(message(name, ": has no template of the name \"default\"; name a file by --chat-template"));
}

}  // namespace fsdp::text
