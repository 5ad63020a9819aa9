// SPDX-License-Identifier: Apache-2.0
#include <fsdp/text/tokenizer_config.hpp>

#include <system_error>

#include <fsdp/core/error.hpp>

#include "../models/strict_json.hpp"

namespace fsdp::text {
namespace {

constexpr std::int64_t most_tokenizer_config_bytes = 10'000'000;  // with chat templates and the added tokens once more
constexpr JsonLimits config_limits{.text = 1'000'000};

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

std::optional<std::string> end_token_beside(const std::filesystem::path& tokenizer) {
  const std::filesystem::path file = tokenizer.parent_path() / "tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::nullopt;
  const nlohmann::json root =
      parse_strict(read_small_file(file, most_tokenizer_config_bytes), file.string(), config_limits);
  require<InputError>(root.is_object(), file.string(), ": is not an object");
  const auto found = root.find("eos_token");
  if (found == root.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  const bool is_token = found->is_object() && found->contains("content") && found->at("content").is_string();
  require<InputError>(is_token, file.string(), ": \"eos_token\" is neither a text nor an object with \"content\"");
  return found->at("content").get<std::string>();
}

}  // namespace fsdp::text
