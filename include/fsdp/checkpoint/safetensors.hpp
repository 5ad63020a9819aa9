// SPDX-License-Identifier: Apache-2.0
/// @file
/// One safetensors file: a strict reader of ranges, and a writer for several ranks that write one file together.
///
/// The reader checks the whole header against the file's size before it reads a tensor.
/// Not here: sets of files (tessera/fsdp/checkpoint/weight_files.hpp), which tensors a model needs
/// (tessera/fsdp/model_files/model_files.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/named_shape.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/file.hpp>

namespace fsdp::checkpoint {

inline constexpr std::int64_t piece_elements = 1 << 20;  ///< of a tensor that is read in pieces

/// A tensor in a file.
struct TensorInfo {
  std::string name = {};
  std::string dtype = {};                ///< as written: "F32", "BF16", ...
  std::vector<std::int64_t> shape = {};  ///< row-major
  std::int64_t elements = 0;
  std::int64_t offset = 0;  ///< of its first byte, from the file's start; may be unaligned
  std::int64_t bytes = 0;
};

/// Whether tensors of this type can be read as weights: F64, F32, BF16 and F16.
bool is_weight_type(std::string_view dtype);

struct FileSums;
class WrittenSums;

/// A file that is open for reading and was checked. Several threads can read at once.
class SafetensorsFile {
 public:
  /// Opens a file. `sums`: its checksums from the manifest, or nullptr; everything that is read is checked against
  /// them. Throws InputError, which names the file and, if there is one, the tensor.
  explicit SafetensorsFile(std::filesystem::path path, std::shared_ptr<const FileSums> sums = {});

  /// The path that was opened.
  const std::filesystem::path& path() const { return path_; }
  std::span<const TensorInfo> tensors() const { return tensors_; }  ///< in the order of their offsets
  /// The header's __metadata__.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(std::string_view name) const;  ///< nullptr if there is none
  const TensorInfo& at(std::string_view name) const;    ///< throws InputError if there is none

  /// Gives every tensor another name. `names`: by the present ones; the new ones differ from each other.
  void rename(const std::map<std::string, std::string>& names);

  /// Read elements [begin, begin + count) of a tensor, converted from F64, F32, BF16 or F16. Without checksums, read
  /// only these elements' bytes; with checksums, the chunks that contain them.
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

/// Returns a sentence about the first of a tensor's `values`, its elements from `begin` on, that is not finite; nothing
/// if there is none.
std::optional<std::string> not_finite_in(const SafetensorsFile& file, std::string_view tensor, std::int64_t begin,
                                         std::span<const float> values);

/// The layout of a file whose tensors have one type. A pure function of the tensors, so every rank makes the same plan.
struct FilePlan {
  DType dtype = DType::f32;              ///< f32, bf16 or f16
  std::string header = {};               ///< the 8 bytes of length and the JSON, padded to a multiple of 8
  std::vector<NamedShape> tensors = {};  ///< in the order given
  std::vector<std::int64_t> offsets =
      {};  ///< of tensors[i], from the file's start; in the file they are sorted by name
  std::int64_t file_bytes = 0;
};

/// Plans a file. Throws InputError for a repeated or invalid name.
FilePlan plan_file(std::vector<NamedShape> tensors, const std::map<std::string, std::string>& metadata = {},
                   DType dtype = DType::f32);

/// A file that several ranks write together. One rank calls `create`; after that the others call `join`.
class SharedFile {
 public:
  /// Creates the file, reserves all its bytes (a full disk fails here) and writes the header. Never overwrites.
  static SharedFile create(const std::filesystem::path& path, FilePlan plan);
  /// Opens a file that another rank created. Throws InputError if its size is not the plan's.
  static SharedFile join(const std::filesystem::path& path, FilePlan plan);

  /// The layout of the file.
  const FilePlan& plan() const { return plan_; }

  /// Writes elements [begin, begin + values.size()) of plan().tensors[tensor], rounded to the plan's type. Throws
  /// InputError if rounding turns a finite number into infinity.
  void write_range(std::size_t tensor, std::int64_t begin, std::span<const float> values) const;

  /// Syncs what this rank wrote to disk and closes the file.
  void finish();

  /// The path that was created or opened.
  const std::filesystem::path& path() const { return path_; }
  const WrittenSums& sums() const { return *sums_; }  ///< checksums of what this rank wrote

 private:
  SharedFile(std::filesystem::path path, FilePlan plan, FileDescriptor file);

  std::filesystem::path path_;
  FilePlan plan_;
  FileDescriptor file_;
  std::shared_ptr<WrittenSums> sums_;
};

}  // namespace fsdp::checkpoint
