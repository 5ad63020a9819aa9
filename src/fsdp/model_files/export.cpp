// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/model_files/export.hpp>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <system_error>
#include <utility>

#include <unistd.h>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../checkpoint/manifest.hpp"
#include "../checkpoint/posix.hpp"
#include "../core/json/strict_json.hpp"
#include "../core/paths.hpp"

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

std::int64_t bytes_of(const NamedShape& tensor, DType dtype) {
  return checked_multiply(elements_of(tensor.shape), size_of(dtype));
}

/// Splits tensors into files, in order: starts a new file if the next tensor would make one too large.
std::vector<std::vector<NamedShape>> cut(const std::vector<NamedShape>& tensors, const ExportOptions& options) {
  std::vector<std::vector<NamedShape>> files(1);
  std::int64_t bytes = 0;
  for (const NamedShape& tensor : tensors) {
    const std::int64_t own = bytes_of(tensor, options.dtype);
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

/// Reads a model's weights with its adapters merged into them, W + s B A, computed in float.
class MergedWeights {
 public:
  /// `model` must outlive this object. `adapter`: the folder of the adapters, for messages. `dtype`: the type that the
  /// weights will be rounded to.
  MergedWeights(const ModelFiles& model, std::string adapter, DType dtype)
      : model_(&model), adapter_(std::move(adapter)), dtype_(dtype) {}

  /// Reads elements [begin, begin + count) of a parameter that is not an adapter. Throws InputError for a value that is
  /// not finite, which a merge of finite values can also produce.
  void read_finite(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out) {
    model_->read_finite(tensor.name, begin, count, out);
    if (tensor.name != name_) open(tensor);
    if (rank_ == 0) return;
    const std::int64_t columns = tensor.shape[1];
    const auto scale = static_cast<float>(model_->listing.lora->scale());
    for (std::int64_t at = begin; at < begin + count;) {
      const std::int64_t row = at / columns, first = at % columns;
      const std::int64_t length = std::min(columns - first, begin + count - at);
      float* const values = out + (at - begin);
      base_.assign(values, values + length);
      product_.assign(static_cast<std::size_t>(length), 0.0F);
      for (std::int64_t k = 0; k < rank_; ++k) {
        const float factor = scale * b_[static_cast<std::size_t>(row * rank_ + k)];
        const float* const a = a_.data() + k * columns + first;
        for (std::int64_t column = 0; column < length; ++column) values[column] += factor * a[column];
        for (std::int64_t column = 0; column < length; ++column)
          product_[static_cast<std::size_t>(column)] += factor * a[column];
      }
      measure(base_.data(), product_.data(), values, length);
      at += length;
    }
    const std::int64_t bad = first_not_finite({out, static_cast<std::size_t>(count)});
    require<InputError>(bad < 0, model_->weights.path().string(), ": ", tensor.name, "[", begin + bad,
                        "] with the product of the adapters of ", adapter_, ", all of which are finite, is ",
                        bad < 0 ? 0.0F : out[bad], "; no run can use it. Take the adapters from elsewhere");
  }

  const MergeEffect& effect() const { return effect_; }  ///< on all values that were read so far

 private:
  void open(const NamedShape& tensor) {
    constexpr std::string_view suffix = ".weight";
    name_ = tensor.name;
    rank_ = 0;
    const std::string module = name_.substr(0, name_.size() - std::min(name_.size(), suffix.size()));
    const std::string a_name = module + ".lora_A.weight", b_name = module + ".lora_B.weight";
    const auto& parameters = model_->listing.parameters;
    if (std::ranges::find(parameters, a_name, &NamedShape::name) == parameters.end()) return;
    rank_ = model_->listing.lora->rank;
    const auto read = [&](const std::string& name, std::int64_t count) {
      std::vector<float> values(static_cast<std::size_t>(count));
      model_->read_finite(name, 0, count, values.data());
      return values;
    };
    a_ = read(a_name, rank_ * tensor.shape[1]);
    b_ = read(b_name, rank_ * tensor.shape[0]);
  }

  void measure(const float* base, const float* product, const float* merged, std::int64_t values) {
    const auto rounded = [&](float value) {
      return dtype_ == DType::bf16  ? static_cast<float>(bf16(value))
             : dtype_ == DType::f16 ? static_cast<float>(f16(value))
                                    : value;
    };
    for (std::int64_t i = 0; i < values; ++i) {
      const float before = rounded(base[i]), after = rounded(merged[i]);
      const double wanted = product[i], lacks = wanted - (static_cast<double>(after) - static_cast<double>(before));
      effect_.changed += after != before ? 1 : 0;
      effect_.wanted += wanted * wanted;
      effect_.lost += lacks * lacks;
    }
    effect_.weights += values;
  }

  const ModelFiles* model_;
  std::string adapter_;
  std::string name_;          // name of the tensor that a_ and b_ belong to
  std::int64_t rank_ = 0;     // rank of the adapter; 0 if the tensor has no adapter
  std::vector<float> a_, b_;  // [r, in], [out, r]
  DType dtype_;
  MergeEffect effect_;
  std::vector<float> base_, product_;  // values of one row
};

/// Reads a range of a tensor.
using Read = std::function<void(const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out)>;

/// Writes all tensors of a file, which may have other names there.
void write_tensors(const std::vector<NamedShape>& tensors, const Read& read, SharedFile file,
                   const std::function<void(std::int64_t)>& written) {
  std::vector<float> piece;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t elements = elements_of(tensors[i].shape);
    for (std::int64_t begin = 0; begin < elements; begin += piece_elements) {
      piece.resize(static_cast<std::size_t>(std::min(piece_elements, elements - begin)));
      read(tensors[i], begin, std::ssize(piece), piece.data());
      file.write_range(i, begin, piece);
      written(std::ssize(piece) * size_of(file.plan().dtypes[i]));
    }
  }
  file.finish();
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
void write_model(const ModelListing& listing, const std::vector<NamedShape>& tensors, bool adapters, const Read& read,
                 const SideFiles& side_files, const ExportOptions& options, const std::filesystem::path& folder,
                 const ExportProgress& progress, Exported& result) {
  const auto files = adapters ? std::vector(1, tensors) : cut(tensors, options);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::int64_t done = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = adapters ? adapter_weights_name : file_name(i, files.size());
    std::vector<NamedShape> stored = files[i];
    for (NamedShape& tensor : stored) {
      if (adapters) tensor.name = peft_name(tensor.name);
      map[tensor.name] = name;
    }
    FilePlan plan = plan_file(std::move(stored), {{"format", "pt"}}, options.dtype);
    write_tensors(files[i], read, SharedFile::create(folder / name, std::move(plan)), [&](std::int64_t bytes) {
      done += bytes;
      if (progress) progress(done, result.bytes);
    });
  }
  result.files = files.size();
  if (files.size() > 1) {
    const nlohmann::ordered_json index = {{"metadata", {{"total_size", result.bytes}}}, {"weight_map", map}};
    write_new_file(folder / index_name, index.dump(2) + "\n");
  }
  if (adapters)
    write_new_file(folder / adapter_config_name, adapter_config(*listing.lora, listing.parameters));
  else
    write_new_file(folder / config_name, config_of(result.from, options.dtype));
  for (const auto& [name, text] : side_files) {
    write_new_file(folder / name, text);
    result.copied.push_back(name);
  }
}

}  // namespace

double MergeEffect::lost_share() const { return wanted > 0 ? std::min(std::sqrt(lost / wanted), 1.0) : 0; }

Exported export_model(const ExportOptions& options, const ReadModelListing& read, const Warn& warn,
                      const ExportProgress& progress) {
  require<InputError>(options.shard_bytes >= 1, "export: files of ", options.shard_bytes, " bytes; at least 1");
  require<InputError>(options.files_from.empty() || folder_exists(options.files_from), options.files_from.string(),
                      ": no such folder");
  Exported result{.from = model_folder(options.from, read, warn)};
  const ModelFiles model = open_model(result.from, read, warn, options.adapter);
  require<InputError>(!options.merge || model.listing.lora, "export: merging: ", result.from.string(),
                      " has no adapters; leave it out, or give their folder");
  SideFiles side_files = options.files_from.empty() ? SideFiles() : read_side_files(options.files_from);
  side_files.merge(read_side_files(result.from));
  const bool adapters = model.listing.lora && !options.merge;  // else all weights, with the adapters merged into them
  const std::vector<NamedShape> tensors = only(model.listing.parameters, adapters);
  MergedWeights merged(model, (options.adapter.empty() ? result.from : options.adapter).string(), options.dtype);
  const Read read_finite = [&](const NamedShape& tensor, std::int64_t begin, std::int64_t count, float* out) {
    if (adapters)
      model.read_finite(tensor.name, begin, count, out);
    else
      merged.read_finite(tensor, begin, count, out);
  };
  for (const NamedShape& tensor : tensors) result.bytes += bytes_of(tensor, options.dtype);
  const std::optional<std::int64_t> left = bytes_left(options.to);
  require<InputError>(!left || result.bytes <= *left, options.to.string(), ": takes ", result.bytes,
                      " bytes and its disk has ", left.value_or(0),
                      " left: No space left on device. Make room, or choose another folder");
  try {
    TemporaryFolder folder(options.to);
    write_model(model.listing, tensors, adapters, read_finite, side_files, options, folder.path(), progress, result);
    if (options.merge) result.merge = merged.effect();
    if (progress) progress(result.bytes, result.bytes);  // last opportunity to cancel
    folder.name();
  } catch (const FileError& error) {
    throw with_advice(error);
  }
  return result;
}

}  // namespace fsdp::checkpoint
