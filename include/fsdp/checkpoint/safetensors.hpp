// SPDX-License-Identifier: Apache-2.0
/// @file
/// One safetensors file: a strict reader of ranges, and a writer for several ranks that write one file together. The
/// reader checks the whole header against the file's size before it reads a tensor. Not here: sets of files
/// (tessera/fsdp/checkpoint/weight_files.hpp), which tensors a model needs (tessera/fsdp/model_files/model_files.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/core/tensor.hpp>

namespace fsdp::checkpoint {

/// Name and shape of a tensor in a file.
struct NamedShape {
  std::string name = {};                 ///< name in Hugging Face's convention, such as "model.norm.weight"
  std::vector<std::int64_t> shape = {};  ///< extents, outer first; [out, in] for a linear layer's weight

  /// Whether this is an adapter's weight, not one of the base model (tessera/fsdp/nn/low_rank.hpp)
  bool adapter = false;

  friend bool operator==(const NamedShape&, const NamedShape&) = default;
};

/// Returns the number of elements of a shape; 1 for an empty shape. Throws InputError if the product overflows.
inline std::int64_t elements_of(std::span<const std::int64_t> shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements = checked_multiply(elements, extent);
  return elements;
}

using fsdp::shape_text;

inline constexpr std::int64_t piece_elements = 1 << 20;  ///< elements of a tensor that are read at once

/// Limits of a file: the reader rejects files beyond them, and the writer does not produce them.
/// @{
inline constexpr std::int64_t most_header_bytes = 25'000'000;  ///< as huggingface_hub; the format allows 100 MB
inline constexpr std::size_t most_rank = 8;                    ///< number of extents of a tensor
/// @}

/// A tensor in a file.
struct TensorInfo {
  std::string name = {};
  std::string dtype = {};                ///< element type as written in the file: "F32", "BF16", ...
  std::vector<std::int64_t> shape = {};  ///< extents, row-major
  std::int64_t elements = 0;
  std::int64_t offset = 0;  ///< position of the first byte, from the file's start; may be unaligned
  std::int64_t bytes = 0;
};

/// Returns whether tensors of this type can be read as weights: F64, F32, BF16 and F16.
bool is_weight_type(std::string_view dtype);

struct FileSums;
class WrittenSums;

/// A file that is open for reading and whose header was checked. Several threads can read it at once.
class SafetensorsFile {
 public:
  /// Opens a file. `sums`: its checksums from the manifest, or nullptr; all bytes that are read are checked against
  /// them. Throws InputError, which reports the file and, if one is affected, the tensor.
  explicit SafetensorsFile(std::filesystem::path path, std::shared_ptr<const FileSums> sums = {});

  const std::filesystem::path& path() const { return path_; }       ///< path that was opened
  std::span<const TensorInfo> tensors() const { return tensors_; }  ///< tensors in the order of their offsets
  const std::map<std::string, std::string>& metadata() const { return metadata_; }  ///< __metadata__
  const TensorInfo* find(std::string_view name) const;  ///< nullptr if there is no such tensor
  const TensorInfo& at(std::string_view name) const;    ///< throws InputError if there is no such tensor

  /// Renames every tensor. `names` maps the present names to the new ones, which must be distinct.
  void rename(const std::map<std::string, std::string>& names);

  /// Reads elements [begin, begin + count) of a tensor, converted from F64, F32, BF16 or F16. T: float or double.
  /// Without checksums, only the bytes of these elements are read; with checksums, all chunks that contain them.
  template <class T>
  void read_range(const TensorInfo& tensor, std::int64_t begin, std::int64_t count, T* out) const;
  /// Reads `out.size()` bytes of a tensor as they are stored, from byte `first` of the tensor on.
  void read_bytes(const TensorInfo& tensor, std::int64_t first, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileSums> sums_;
  FileDescriptor file_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string> metadata_;
};

/// Returns a message about the first value that is not finite in `values`, the elements of a tensor from `begin` on;
/// nothing if all are finite.
std::optional<std::string> not_finite_in(const SafetensorsFile& file, std::string_view tensor, std::int64_t begin,
                                         std::span<const float> values);

/// The layout of a file. A pure function of the tensors, so that every rank computes the same plan.
struct FilePlan {
  std::string header = {};               ///< the 8 bytes of the length and the JSON, padded to a multiple of 8
  std::vector<NamedShape> tensors = {};  ///< tensors in the order in which they were given
  std::vector<DType> dtypes = {};        ///< their element types: f32, bf16, f16, or u8 for bytes
  std::vector<std::int64_t> offsets =
      {};  ///< position of tensors[i] from the file's start; in the file, tensors are sorted by name
  std::int64_t file_bytes = 0;
};

/// Plans the layout of a file. Throws InputError for a repeated or invalid name.
FilePlan plan_file(std::vector<NamedShape> tensors, const std::map<std::string, std::string>& metadata = {},
                   DType dtype = DType::f32);
/// The same for tensors of different element types, in the order of the tensors.
FilePlan plan_file(std::vector<NamedShape> tensors, const std::map<std::string, std::string>& metadata,
                   std::vector<DType> dtypes);

/// A file that several ranks write together. One rank calls `create`; after that the others call `join`.
class SharedFile {
 public:
  /// Creates the file, reserves all its bytes (so that a full disk is an error here) and writes the header. Never
  /// overwrites a file.
  static SharedFile create(const std::filesystem::path& path, FilePlan plan);
  /// Opens a file that another rank created. Throws InputError if its size differs from the plan.
  static SharedFile join(const std::filesystem::path& path, FilePlan plan);

  const FilePlan& plan() const { return plan_; }  ///< layout of the file

  /// Writes elements [begin, begin + values.size()) of plan().tensors[tensor], rounded to the tensor's type. Throws
  /// InputError if rounding turns a finite number into infinity.
  void write_range(std::size_t tensor, std::int64_t begin, std::span<const float> values) const;
  /// Writes bytes as they are, from byte `first` of plan().tensors[tensor] on.
  void write_bytes(std::size_t tensor, std::int64_t first, std::span<const std::byte> bytes) const;
  void finish();  ///< syncs the bytes that this rank wrote to disk and closes the file
  const std::filesystem::path& path() const { return path_; }  ///< path that was created or opened
  const WrittenSums& sums() const { return *sums_; }           ///< checksums of the bytes that this rank wrote

 private:
  SharedFile(std::filesystem::path path, FilePlan plan, FileDescriptor file);

  std::filesystem::path path_;
  FilePlan plan_;
  FileDescriptor file_;
  std::shared_ptr<WrittenSums> sums_;
};

}  // namespace fsdp::checkpoint
