// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/weight_files.hpp>

#include <optional>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"
#include "manifest.hpp"
#include "unread_weights.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t most_index_bytes = 25'000'000;  // same limit as for a safetensors header

/// The shards of an index, each with its tensors.
using Shards = std::map<std::string, std::set<std::string>>;

Shards read_index(const std::filesystem::path& path) {
  const std::string file = path.string();
  const nlohmann::json root =
      parse_strict(read_small_file(path, most_index_bytes), file, {.depth = 3, .values = 1'000'000, .array = 1000});
  require<InputError>(root.is_object() && root.contains("weight_map") && root.at("weight_map").is_object() &&
                          !root.at("weight_map").empty(),
                      file, ": has no \"weight_map\", an object that names the file of each tensor");
  Shards shards;
  for (const auto& [tensor, shard] : root.at("weight_map").items()) {
    require<InputError>(shard.is_string(), file, ": the file of tensor \"", shortened(tensor), "\" is not a text");
    const std::string name = shard.get<std::string>();
    const bool plain = !name.empty() && name.find_first_of("/\\") == std::string::npos && name != "." && name != "..";
    require<InputError>(plain, file, ": tensor \"", shortened(tensor), "\" is in \"", shortened(name),
                        "\"; an index may name files of its own folder alone, without / or ..");
    shards[name].insert(tensor);
  }
  return shards;
}

void require_all_there(const std::filesystem::path& index, const Shards& shards) {
  std::string missing;
  std::size_t count = 0;
  for (const auto& [name, tensors] : shards)
    if (!entry_exists(index.parent_path() / name) && ++count <= 10) missing += (count == 1 ? "" : ", ") + name;
  require<InputError>(count == 0, index.string(), ": names ", shards.size(), shards.size() == 1 ? " file" : " files",
                      ", of which ", count, count == 1 ? " is" : " are", " missing: ", missing,
                      count > 10 ? " and more" : "", "; download the folder again");
}

/// Throws InputError unless the index lists exactly the tensors of a shard.
void require_listed(const std::filesystem::path& index, const SafetensorsFile& shard,
                    const std::set<std::string>& listed) {
  for (const std::string& name : listed)
    require<InputError>(shard.find(name) != nullptr, index.string(), ": says that tensor \"", name, "\" is in ",
                        shard.path().filename().string(), ", which does not hold it");
  for (const TensorInfo& tensor : shard.tensors())
    require<InputError>(listed.contains(tensor.name), shard.path().string(), ": holds tensor \"", tensor.name,
                        "\", which ", index.filename().string(), " does not list there");
}

}  // namespace

WeightFiles::WeightFiles(SafetensorsFile file) : path_(file.path()) { add(std::move(file)); }

WeightFiles WeightFiles::open(const std::filesystem::path& folder, const Warn& warn) {
  const std::filesystem::path single = folder / model_name, index = folder / index_name;
  if (entry_exists(single)) {
    if (warn && entry_exists(index))
      warn(message(folder.string(), ": holds both ", model_name, " and ", index_name, "; the first is read"));
    return SafetensorsFile(single);
  }
  if (!entry_exists(index)) require_no_unread_weights(folder);
  require<InputError>(entry_exists(index), folder.string(), ": holds neither ", model_name, " nor ", index_name,
                      ", so that there are no weights to read");
  const Shards shards = read_index(index);
  require_all_there(index, shards);
  WeightFiles files(index);
  for (const auto& [name, listed] : shards) {
    SafetensorsFile shard(folder / name);
    require_listed(index, shard, listed);
    files.add(std::move(shard));
  }
  return files;
}

void WeightFiles::add(SafetensorsFile file) {
  for (const TensorInfo& tensor : file.tensors()) file_of_.emplace(tensor.name, files_.size());
  files_.push_back(std::move(file));
}

void WeightFiles::rename(const std::map<std::string, std::string>& names) {
  file_of_.clear();
  for (std::size_t i = 0; i < files_.size(); ++i) {
    files_[i].rename(names);
    for (const TensorInfo& tensor : files_[i].tensors()) file_of_.emplace(tensor.name, i);
  }
}

std::vector<const TensorInfo*> WeightFiles::tensors() const {
  std::vector<const TensorInfo*> list;
  for (const auto& [name, file] : file_of_) list.push_back(files_[file].find(name));
  return list;
}

const TensorInfo* WeightFiles::find(std::string_view name) const {
  const auto found = file_of_.find(name);
  return found == file_of_.end() ? nullptr : files_[found->second].find(name);
}

const SafetensorsFile& WeightFiles::file_with(std::string_view name) const {
  const auto found = file_of_.find(name);
  require<InputError>(found != file_of_.end(), path_.string(), ": has no tensor \"", name, "\"");
  return files_[found->second];
}

void WeightFiles::read_range(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const {
  const SafetensorsFile& file = file_with(name);
  file.read_range(file.at(name), begin, count, out);
}

void WeightFiles::read_finite(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const {
  read_range(name, begin, count, out);
  const std::span values(out, static_cast<std::size_t>(count));
  if (const auto sentence = not_finite_in(file_with(name), name, begin, values)) throw InputError(*sentence);
}

bool holds_weights(const std::filesystem::path& folder) {
  if (entry_exists(folder / model_name) || entry_exists(folder / index_name)) return true;
  require_no_unread_weights(folder);
  return false;
}

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
