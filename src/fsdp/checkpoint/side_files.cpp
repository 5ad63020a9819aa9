// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/side_files.hpp>

#include <optional>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"
#include "manifest.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t most_side_bytes = 100'000'000;  // per file; the file of a tokenizer with 256 Ki tokens has 35 MB

constexpr const char* generation_name = "generation_config.json";
constexpr const char* side_names[] = {
    generation_name, "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",    "merges.txt",     "tokenizer.model",       "chat_template.jinja"};

}  // namespace

SideFiles read_side_files(const std::filesystem::path& folder, const Warn& warn) {
  const std::optional<Manifest> manifest = read_manifest(folder);
  SideFiles files;
  for (const char* const name : side_names) {
    const std::filesystem::path path = folder / name;
    const bool listed = manifest && manifest->files.contains(name);
    if (!listed && !entry_exists(path)) continue;
    try {
      std::string content = read_small_file(path, most_side_bytes);
      if (listed) check_content(*manifest, path, content);
      require<InputError>(path.extension() != ".json" || content.find_first_not_of(" \t\r\n") != std::string::npos,
                          path.string(), ": is empty; download the file again");
      files.emplace(name, std::move(content));
    } catch (const InputError& unreadable) {
      if (!warn) throw;
      warn(message(unreadable.what(), "; it is left out of checkpoints"));
    }
  }
  return files;
}

SideFiles read_tokenizer_files(const std::filesystem::path& path, const Warn& warn) {
  SideFiles files = read_side_files(std::filesystem::is_directory(path) ? path : path.parent_path(), warn);
  files.erase(generation_name);
  return files;
}

}  // namespace fsdp::checkpoint
