// SPDX-License-Identifier: Apache-2.0
#include <tessera/text/tokenizer_config.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "../fsdp/core/paths.hpp"

namespace fsdp::text {
namespace {

using namespace std::string_view_literals;

constexpr std::int64_t most_tokenizer_config_bytes = 10'000'000;  // includes chat templates and repeats added tokens
constexpr JsonLimits config_limits{.text = 1'000'000};

constexpr const char* config_name = "tokenizer_config.json";
constexpr const char* map_name = "special_tokens_map.json";

/// Returns the JSON object in a file next to a tokenizer.json; an empty object if the file does not exist.
nlohmann::json object_beside(const std::filesystem::path& tokenizer, const char* name) {
  const std::filesystem::path file = tokenizer.parent_path() / name;
  if (!path_exists(file)) return nlohmann::json::object();
  nlohmann::json root = parse_strict(read_small_file(file, most_tokenizer_config_bytes), file.string(), config_limits);
  require<InputError>(root.is_object(), file.string(), ": is not an object");
  return root;
}

/// Returns the text of a special token, which is a text or an object with "content"; nothing for any other value.
std::optional<std::string> token_text(const nlohmann::json& value) {
  return value.is_object() ? value_at<std::string>(value, "content") : value_as<std::string>(value);
}

bool is_standard(std::string_view name) {
  constexpr std::array names = {"bos_token"sv, "eos_token"sv, "unk_token"sv, "pad_token"sv,
                                "sep_token"sv, "cls_token"sv, "mask_token"sv};
  return std::ranges::find(names, name) != names.end();
}

/// Adds the special tokens that a file specifies, as the constructor of tokenizers in `transformers` 5.24 does: null
/// removes a token; a model may have further keys, which end with "_token".
void add_tokens(const nlohmann::json& root, const std::filesystem::path& file,
                std::map<std::string, std::string>& tokens) {
  for (const auto& [name, value] : root.items()) {
    if (!name.ends_with("_token")) continue;
    const std::optional<std::string> text = token_text(value);
    require<InputError>(text || value.is_null() || !is_standard(name), file.string(), ": \"", shortened(name),
                        "\" is neither a text nor an object with \"content\"");
    if (text) tokens[name] = *text;
    if (value.is_null()) tokens.erase(name);
  }
  const auto more = root.find("extra_special_tokens");
  if (more == root.end() || !more->is_object()) return;
  for (const auto& [name, value] : more->items())
    if (const std::optional<std::string> text = token_text(value)) tokens[name] = *text;
}

}  // namespace

std::optional<std::filesystem::path> find_tokenizer(const std::filesystem::path& path) {
  if (!folder_exists(path)) return path;
  const std::filesystem::path file = path / "tokenizer.json";
  return path_exists(file) ? std::optional(file) : std::nullopt;
}

std::filesystem::path tokenizer_at(const std::filesystem::path& path) {
  const std::optional<std::filesystem::path> found = find_tokenizer(path);
  require<InputError>(found.has_value(), "--tokenizer ", path.string(), " holds no tokenizer.json");
  return *found;
}

std::map<std::string, std::string> special_tokens_beside(const std::filesystem::path& tokenizer) {
  const nlohmann::json config = object_beside(tokenizer, config_name);
  std::map<std::string, std::string> tokens;
  add_tokens(config, tokenizer.parent_path() / config_name, tokens);
  // The map belongs to older exports, whose tokenizer_config.json has no "added_tokens_decoder".
  if (!config.contains("added_tokens_decoder"))
    add_tokens(object_beside(tokenizer, map_name), tokenizer.parent_path() / map_name, tokens);
  return tokens;
}

std::optional<TokenId> end_token_of(const Tokenizer& tokenizer, const std::filesystem::path& file,
                                    const std::map<std::string, std::string>& special, const std::string& asked) {
  if (asked == "none") return std::nullopt;
  std::string name = asked;
  if (name.empty()) {
    const auto found = special.find("eos_token");
    require<InputError>(found != special.end(), file.string(), ": neither ", config_name, " nor ", map_name,
                        " beside it names an eos_token (the second counts where the first has no "
                        "\"added_tokens_decoder\"); name the token that ends a document by --end-token, or "
                        "--end-token none");
    name = found->second;
  }
  const std::optional<TokenId> end = tokenizer.id_of(name);
  require<InputError>(end.has_value(), "the end token \"", name, "\" is none of ", file.string(),
                      "; name one that is by --end-token, or --end-token none");
  return end;
}

std::optional<NamedText> chat_template_beside(const std::filesystem::path& tokenizer) {
  const std::filesystem::path jinja = tokenizer.parent_path() / "chat_template.jinja";
  if (path_exists(jinja))
    return NamedText{.name = jinja.string(), .text = read_small_file(jinja, most_tokenizer_config_bytes)};
  const std::filesystem::path file = tokenizer.parent_path() / config_name;
  const nlohmann::json root = object_beside(tokenizer, config_name);
  const auto found = root.find("chat_template");
  if (found == root.end() || found->is_null()) return std::nullopt;
  const std::string name = file.string() + ", chat_template";
  if (auto text = value_as<std::string>(*found)) return NamedText{.name = name, .text = *std::move(text)};
  require<InputError>(found->is_array(), name, ": is neither a text nor a list of templates");
  for (const nlohmann::json& one : *found) {
    auto text = value_at<std::string>(one, "template");
    if (text && value_at<std::string>(one, "name") == "default")
      return NamedText{.name = name, .text = *std::move(text)};
  }
  throw InputError(message(name, ": has no template of the name \"default\"; name a file by --chat-template"));
}

}  // namespace fsdp::text
