// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/export.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../checkpoint/manifest.hpp"
#include "../checkpoint/posix.hpp"
#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"
#include "merged.hpp"

namespace fsdp::checkpoint {
namespace {

/// Returns `path` without trailing slashes and dots.
std::filesystem::path named(std::filesystem::path path) {
  while (path.has_relative_path() && (path.filename().empty() || path.filename() == ".")) path = path.parent_path();
  return path;
}

/// A temporary folder that `name` syncs and renames. Otherwise the destructor removes it, together with the parent
/// folders that were created for it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& to)
      : to_(named(to)), path_(to_.string() + ".tmp-" + std::to_string(::getpid())) {
    for (const std::filesystem::path& path : {to, to_})
      require<InputError>(!entry_exists(path), to.string(), ": is there already; give a new name, or remove it");
    std::error_code error;
    if (to_.has_parent_path()) made_ = make_folders(to_.parent_path());
    if (std::filesystem::create_directory(path_, error)) return;
    remove_made(made_);
    if (!error) error = std::make_error_code(std::errc::file_exists);
    throw FileError(message(path_.string(), ": cannot be created: ", error.message()), error.value());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    if (kept_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    remove_made(made_);
  }

  const std::filesystem::path& path() const { return path_; }
  void name() {
    sync_directory(path_);
    if (::rename(path_.c_str(), to_.c_str()) != 0) throw_errno(to_, "renamed to, from " + path_.string());
    path_ = to_;
    sync_directory(to_.has_parent_path() ? to_.parent_path() : ".");
    kept_ = true;
  }

 private:
  std::filesystem::path to_, path_;
  std::vector<std::filesystem::path> made_;
  bool kept_ = false;
};

/// Splits tensors into files, in order: starts a new file if the next tensor would make one too large.
std::vector<std::vector<NamedShape>> cut(const std::vector<NamedShape>& tensors, const ExportOptions& options) {
  std::vector<std::vector<NamedShape>> files(1);
  std::int64_t bytes = 0;
  for (const NamedShape& tensor : tensors) {
    const std::int64_t own = checked_multiply(elements_of(tensor.shape), size_of(options.dtype));
    if (!files.back().empty() && own > options.shard_bytes - bytes) {
      files.emplace_back();
      bytes = 0;
    }
    files.back().push_back(tensor);
    bytes += own;
  }
  return files;
}

/// Returns huggingface_hub's name for the i-th of `count` files.
std::string file_name(std::size_t i, std::size_t count) {
  if (count == 1) return model_name;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, count);
  return name;
}

/// Returns the folder's config.json with the given type of weights, and without adapters.
std::string config_of(const std::filesystem::path& folder, DType dtype) {
  const std::filesystem::path path = folder / config_name;
  const std::string text = read_small_file(path, most_config_bytes);
  (void)parse_strict(text, path.string());
  auto object = nlohmann::ordered_json::parse(text);
  const char* const name = dtype == DType::bf16 ? "bfloat16" : dtype == DType::f16 ? "float16" : "float32";
  object.erase("lora");
  object[object.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  return object.dump(2) + "\n";
}

/// The tensors to write, with their names in the files, and a function that reads a range of the i-th tensor. It throws
/// InputError for a value that is not finite, which a merge of finite values can also produce.
struct Content {
  std::vector<NamedShape> tensors;
  std::function<void(std::size_t i, std::int64_t begin, std::int64_t count, float* out)> read;
  /// Merged weights if all weights are written; null if only adapters are.
  std::shared_ptr<const MergedWeights> merged = {};

  std::int64_t bytes(DType dtype) const {
    std::int64_t sum = 0;
    for (const NamedShape& tensor : tensors) sum += checked_multiply(elements_of(tensor.shape), size_of(dtype));
    return sum;
  }
};

/// Writes the tensors of a file; they start at index `first` of the content.
void write_tensors(const Content& content, std::size_t first, SharedFile& file,
                   const std::function<void(std::int64_t)>& written) {
  std::vector<float> piece;
  for (std::size_t i = 0; i < file.plan().tensors.size(); ++i) {
    const std::int64_t elements = elements_of(file.plan().tensors[i].shape);
    for (std::int64_t begin = 0; begin < elements; begin += piece_elements) {
      piece.resize(static_cast<std::size_t>(std::min(piece_elements, elements - begin)));
      content.read(first + i, begin, std::ssize(piece), piece.data());
      file.write_range(i, begin, piece);
      written(std::ssize(piece) * size_of(file.plan().dtype));
    }
  }
  file.finish();
}

/// Returns the content to export: only the adapters if the model has adapters and `merge` is false; else all weights,
/// with the adapters merged into them.
Content content_of(const ModelFiles& model, const std::filesystem::path& from, const ExportOptions& options) {
  if (model.listing.lora && !options.merge) {
    const std::vector<NamedShape> adapters = only(model.listing.parameters, true);
    std::vector<NamedShape> named = adapters;
    for (NamedShape& tensor : named) tensor.name = peft_name(tensor.name);
    return {std::move(named), [&model, adapters](std::size_t i, std::int64_t begin, std::int64_t count, float* out) {
              model.read_finite(adapters[i].name, begin, count, out);
            }};
  }
  const std::vector<NamedShape> tensors = only(model.listing.parameters, false);
  const std::string adapter = options.adapter.empty() ? from.string() : options.adapter.string();
  const auto merged = std::make_shared<MergedWeights>(model, adapter, options.dtype);
  return {tensors,
          [tensors, merged](std::size_t i, std::int64_t begin, std::int64_t count, float* out) {
            merged->read_finite(tensors[i], begin, count, out);
          },
          merged};
}

/// Returns the side files; files in the folder `asked` take precedence over the model's.
SideFiles side_files_of(const std::filesystem::path& model, const std::filesystem::path& asked) {
  SideFiles files = asked.empty() ? SideFiles() : read_side_files(asked);
  files.merge(read_side_files(model));
  return files;
}

/// Adds advice to the error of a full disk, a quota or a file size limit.
FileError with_advice(const FileError& error) {
  const int number = error.number();
  if (number == ENOSPC || number == EDQUOT)
    return {message(error.what(), "; nothing of the export is kept. Make room, or choose another folder"), number};
  if (number == EFBIG)
    return {message(error.what(), "; nothing of the export is kept. --shard-bytes N makes smaller files"), number};
  return error;
}

/// Writes all files of an export into an existing folder.
void write_model(const ModelFiles& model, const Content& content, const SideFiles& side_files,
                 const ExportOptions& options, const std::filesystem::path& folder, const ExportProgress& progress,
                 Exported& result) {
  const bool adapters = model.listing.lora && !options.merge;
  using Files = std::vector<std::vector<NamedShape>>;
  const Files files = adapters ? Files{content.tensors} : cut(content.tensors, options);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::int64_t done = 0;
  std::size_t first = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = adapters ? adapter_weights_name : file_name(i, files.size());
    for (const NamedShape& tensor : files[i]) map[tensor.name] = name;
    SharedFile file = SharedFile::create(folder / name, plan_file(files[i], {{"format", "pt"}}, options.dtype));
    write_tensors(content, first, file, [&](std::int64_t bytes) {
      done += bytes;
      if (progress) progress(done, result.bytes);
    });
    first += files[i].size();
  }
  result.files = files.size();
  if (files.size() > 1) {
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", result.bytes}}}, {"weight_map", map}};
    write_new_file(folder / index_name, index.dump(2) + "\n");
  }
  if (adapters)
    write_new_file(folder / adapter_config_name, adapter_config(*model.listing.lora, model.listing.parameters));
  else
    write_new_file(folder / config_name, config_of(result.from, options.dtype));
  for (const auto& [name, text] : side_files) {
    write_new_file(folder / name, text);
    result.copied.push_back(name);
  }
}

}  // namespace

Exported export_model(const ExportOptions& options, const ReadModelListing& read, const Warn& warn,
                      const ExportProgress& progress) {
  require<InputError>(options.shard_bytes >= 1, "export: files of ", options.shard_bytes, " bytes; at least 1");
  require<InputError>(options.files_from.empty() || folder_exists(options.files_from), options.files_from.string(),
                      ": no such folder");
  Exported result{.from = model_folder(options.from, read, warn)};
  const ModelFiles model = open_model(result.from, read, warn, options.adapter);
  require<InputError>(!options.merge || model.listing.lora, "export: merging: ", result.from.string(),
                      " has no adapters; leave it out, or give their folder");
  const SideFiles side_files = side_files_of(result.from, options.files_from);
  const Content content = content_of(model, result.from, options);
  result.bytes = content.bytes(options.dtype);
  const std::optional<std::int64_t> left = bytes_left(options.to);
  require<InputError>(!left || result.bytes <= *left, options.to.string(), ": takes ", result.bytes,
                      " bytes and its disk has ", left.value_or(0),
                      " left: No space left on device. Make room, or choose another folder");
  try {
    TemporaryFolder folder(options.to);
    write_model(model, content, side_files, options, folder.path(), progress, result);
    if (options.merge) result.merge = content.merged->effect();
    if (progress) progress(result.bytes, result.bytes);  // last opportunity to cancel
    folder.name();
  } catch (const FileError& error) {
    throw with_advice(error);
  }
  return result;
}

}  // namespace fsdp::checkpoint
