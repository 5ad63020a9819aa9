// SPDX-License-Identifier: Apache-2.0
/// @file
/// The weights of a model as a folder holds them: one safetensors file, or shards and the index that lists them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/checkpoint/safetensors.hpp>

namespace fsdp::checkpoint {

/// Called with one sentence that the user should see and that stops nothing.
using Warn = std::function<void(const std::string&)>;

/// Files that were opened and checked, a tensor in one of them each. As many files are open as there are shards.
class WeightFiles {
 public:
  WeightFiles(SafetensorsFile file);

  /// `folder`/model.safetensors; where there is none, the shards of `folder`/model.safetensors.index.json, as
  /// huggingface_hub writes them. Throws InputError where neither is there, where the index names a file outside of the
  /// folder or one that is missing, and where it and the shards do not hold the same tensors. Files may be symbolic
  /// links to anywhere: the hub's cache is made of them.
  static WeightFiles open(const std::filesystem::path& folder, const Warn& warn = {});

  const std::filesystem::path& path() const { return path_; }  ///< of the file, or of the index
  std::span<const SafetensorsFile> files() const { return files_; }
  std::vector<const TensorInfo*> tensors() const;       ///< of all files, by name
  const TensorInfo* find(std::string_view name) const;  ///< nullptr where there is none

  /// Elements [begin, begin + count) of a tensor, converted from F64, F32, BF16 or F16. Only their bytes are read.
  /// Throws InputError where there is no such tensor.
  void read_range(std::string_view name, std::int64_t begin, std::int64_t count, float* out) const;

 private:
  explicit WeightFiles(std::filesystem::path path) : path_(std::move(path)) {}
  void add(SafetensorsFile file);

  std::filesystem::path path_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t, std::less<>> file_of_;  ///< by tensor
};

/// Whether a folder holds weights, sound or not.
bool holds_weights(const std::filesystem::path& folder);

}  // namespace fsdp::checkpoint
