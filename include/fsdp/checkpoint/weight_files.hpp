// SPDX-License-Identifier: Apache-2.0
/// @file
/// The files in a model's folder other than config.json: the weights, in one safetensors file or several with an
/// index, and the side files, which are copied together with the model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/safetensors.hpp>

namespace fsdp::checkpoint {

/// Called with a warning for the user, one complete sentence.
using Warn = std::function<void(const std::string&)>;

/// All weight files of a folder, opened and checked. Each tensor is in exactly one of them.
class WeightFiles {
 public:
  WeightFiles(SafetensorsFile file);

  /// Opens `folder`/model.safetensors, or else the shards of `folder`/model.safetensors.index.json, as huggingface_hub
  /// writes them. Throws InputError if neither exists (for weights in another form, the error of holds_weights), if the
  /// index lists a file that is missing or outside of the folder, or if index and shards do not list the same tensors.
  /// Files may be symbolic links to any place, as in the hub's cache.
  static WeightFiles open(const std::filesystem::path& folder, const Warn& warn = {});

  const std::filesystem::path& path() const { return path_; }  ///< path of the file, or of the index
  std::span<const SafetensorsFile> files() const { return files_; }
  std::vector<const TensorInfo*> tensors() const;       ///< tensors of all files, sorted by name
  const TensorInfo* find(std::string_view name) const;  ///< nullptr if there is no such tensor

  /// Renames every tensor. `names` maps the present names to the new ones, which must be distinct.
  void rename(const std::map<std::string, std::string>& names);

  /// Reads elements [begin, begin + count) of a tensor, converted from F64, F32, BF16 or F16. Throws InputError if
  /// there is no such tensor.
  void read_range(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;
  /// The same; throws InputError, which reports the file and the element, for a value that is not finite.
  void read_finite(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;

 private:
  const SafetensorsFile& file_with(std::string_view name) const;
  explicit WeightFiles(std::filesystem::path path) : path_(std::move(path)) {}
  void add(SafetensorsFile file);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;  ///< index in files_ by tensor name
};

/// Returns whether a folder contains weight files, valid or not. Throws InputError, which reports the file and a
/// remedy, if the folder has no readable weights but a file that may contain weights in another form.
bool holds_weights(const std::filesystem::path& folder);

/// The tokenizer's files and generation_config.json: file contents by name.
using SideFiles = std::map<std::string, std::string>;

/// Reads the side files of a folder, and checks those that its manifest lists. A file that cannot be read is omitted
/// with a warning; without `warn` it is an InputError.
SideFiles read_side_files(const std::filesystem::path& folder, const Warn& warn = {});

/// Reads only the files of a tokenizer. `path`: its tokenizer.json, or the folder that contains it.
SideFiles read_tokenizer_files(const std::filesystem::path& path, const Warn& warn = {});

}  // namespace fsdp::checkpoint
