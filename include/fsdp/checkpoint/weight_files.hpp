// SPDX-License-Identifier: Apache-2.0
/// @file
/// The weights in a model's folder: one safetensors file, or several with an index.
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

/// Called with a warning for the user, one sentence.
using Warn = std::function<void(const std::string&)>;

/// All weight files of a folder, open and checked. Each tensor is in exactly one of them.
class WeightFiles {
 public:
  WeightFiles(SafetensorsFile file);

  /// Opens `folder`/model.safetensors, or else the shards of `folder`/model.safetensors.index.json, as huggingface_hub
  /// writes them. Throws InputError if neither exists (as holds_weights does, for weights in another form), if the
  /// index names a missing file or one outside of the folder, or if index and shards do not list the same tensors.
  /// Files may be symbolic links to any place, as in the hub's cache.
  static WeightFiles open(const std::filesystem::path& folder, const Warn& warn = {});

  const std::filesystem::path& path() const { return path_; }  ///< of the file, or of the index
  std::span<const SafetensorsFile> files() const { return files_; }
  std::vector<const TensorInfo*> tensors() const;       ///< of all files, sorted by name
  const TensorInfo* find(std::string_view name) const;  ///< nullptr if there is none

  /// Gives every tensor another name. `names`: by the present ones; the new ones differ from each other.
  void rename(const std::map<std::string, std::string>& names);

  /// Reads elements [begin, begin + count) of a tensor, converted from F64, F32, BF16 or F16. Throws InputError if
  /// there is no such tensor.
  void read_range(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;
  /// The same; throws InputError, which names the file and the element, for a value that is not finite.
  void read_finite(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;

 private:
  const SafetensorsFile& file_with(std::string_view name) const;
  explicit WeightFiles(std::filesystem::path path) : path_(std::move(path)) {}
  void add(SafetensorsFile file);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;  ///< by tensor
};

/// Returns whether a folder has files of weights, sound or not. Throws InputError, which names the file and says what
/// to do, if it has no weights that can be read, but a file that may be weights in another form.
bool holds_weights(const std::filesystem::path& folder);

}  // namespace fsdp::checkpoint
