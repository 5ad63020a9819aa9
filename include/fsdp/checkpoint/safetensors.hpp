// SPDX-License-Identifier: Apache-2.0
/// @file
/// One safetensors file: a strict reader of ranges, and a writer that many ranks use on one file at once.
///
/// The reader trusts nothing: the whole header is checked against the file's size before a tensor is read.
/// Not here: sets of files (checkpoint/weight_files.hpp), which tensors a model needs (checkpoint/model_files.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fsdp/checkpoint/named_shape.hpp>
#include <fsdp/core/dtype.hpp>
#include <fsdp/core/file.hpp>

namespace fsdp::checkpoint {

/// A tensor in a file.
struct TensorInfo {
  std::string name = {};
  std::string dtype = {};                ///< as written: "F32", "BF16", ...
  std::vector<std::int64_t> shape = {};  ///< row-major
  std::int64_t elements = 0;
  std::int64_t offset = 0;  ///< of its first byte, from the file's start; not aligned
  std::int64_t bytes = 0;
};

struct FileSums;
class WrittenSums;

/// A file that was opened and checked. Reading from several threads at once is allowed.
class SafetensorsFile {
 public:
  /// Throws InputError, naming the file and, where there is one, the tensor. `sums`: what the file's manifest tells of
  /// it, or nothing; all that is read from it is checked against them.
  explicit SafetensorsFile(std::filesystem::path path, std::shared_ptr<const FileSums> sums = {});

  /// As it was opened.
  const std::filesystem::path& path() const { return path_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }  ///< in the order of their offsets
  /// What the header's __metadata__ holds.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(std::string_view name) const;  ///< nullptr where there is none
  const TensorInfo& at(std::string_view name) const;    ///< throws InputError where there is none

  /// Elements [begin, begin + count) of a tensor, converted from F64, F32, BF16 or F16. Only their bytes are read.
  /// @{
  void read_range(const TensorInfo& tensor, std::int64_t begin, std::int64_t count, float* out) const;
  void read_range(const TensorInfo& tensor, std::int64_t begin, std::int64_t count, double* out) const;
  /// @}

 private:
  template <class T>
  void read_as(const TensorInfo& tensor, std::int64_t begin, std::int64_t count, T* out) const;

  std::filesystem::path path_;
  std::shared_ptr<const FileSums> sums_;
  FileDescriptor file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Where everything of a file of one type stands. A pure function of the tensors, so every rank makes the same plan.
struct FilePlan {
  DType dtype = DType::f32;              ///< f32, bf16 or f16
  std::string header = {};               ///< the 8 bytes of length and the JSON, padded to a multiple of 8
  std::vector<NamedShape> tensors = {};  ///< as given
  std::vector<std::int64_t> offsets =
      {};  ///< of tensors[i], from the file's start; in the file they are sorted by name
  std::int64_t file_bytes = 0;
};

/// Throws InputError on a repeated or unusable name.
FilePlan plan_file(std::vector<NamedShape> tensors, const std::map<std::string, std::string>& metadata = {},
                   DType dtype = DType::f32);

/// One file being written by several ranks. One calls `create`; after it the others call `join`.
class SharedFile {
 public:
  /// Makes the file, reserves all its bytes (so a full disk is found here) and writes the header. Never overwrites.
  static SharedFile create(const std::filesystem::path& path, FilePlan plan);
  /// Opens what another rank created. Throws InputError where the file has not the plan's size.
  static SharedFile join(const std::filesystem::path& path, FilePlan plan);

  /// Where everything stands.
  const FilePlan& plan() const { return plan_; }

  /// Elements [begin, begin + values.size()) of plan().tensors[tensor], rounded to the plan's type. Throws InputError
  /// where that makes an infinity of a finite number.
  void write_range(std::size_t tensor, std::int64_t begin, std::span<const float> values) const;

  /// What this rank wrote is on disk when this returns; the file is closed.
  void finish();

  /// As it was created or opened.
  const std::filesystem::path& path() const { return path_; }
  const WrittenSums& sums() const { return *sums_; }  ///< of what this rank wrote

 private:
  SharedFile(std::filesystem::path path, FilePlan plan, FileDescriptor file);

  std::filesystem::path path_;
  FilePlan plan_;
  FileDescriptor file_;
  std::shared_ptr<WrittenSums> sums_;
};

}  // namespace fsdp::checkpoint
