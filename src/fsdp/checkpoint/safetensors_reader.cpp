// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/safetensors.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/parameter.hpp>

#include "../core/json/strict_json.hpp"
#include "../core/magics.hpp"
#include "manifest.hpp"

namespace fsdp::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "fsdp: safetensors are little-endian, read without swapping");

using nlohmann::json;

struct StoredType {
  std::string_view name;
  std::int64_t bytes;
};
/// Sizes of all types of the format that occupy whole bytes. read_range converts F64, F32, BF16 and F16.
constexpr std::array stored_types = {
    StoredType{"F64", 8},     StoredType{"F32", 4},         StoredType{"F16", 2},        StoredType{"BF16", 2},
    StoredType{"I64", 8},     StoredType{"I32", 4},         StoredType{"I16", 2},        StoredType{"I8", 1},
    StoredType{"U64", 8},     StoredType{"U32", 4},         StoredType{"U16", 2},        StoredType{"U8", 1},
    StoredType{"BOOL", 1},    StoredType{"C64", 8},         StoredType{"F8_E4M3", 1},    StoredType{"F8_E5M2", 1},
    StoredType{"F8_E8M0", 1}, StoredType{"F8_E4M3FNUZ", 1}, StoredType{"F8_E5M2FNUZ", 1}};

std::int64_t bytes_of(const std::string& dtype, const std::string& where) {
  for (const StoredType& type : stored_types)
    if (type.name == dtype) return type.bytes;
  throw InputError(message(where, ": unknown dtype \"", shortened(dtype), "\""));
}

std::int64_t whole_number(const json& value, const std::string& where, const char* what) {
  const std::optional<std::int64_t> number = value_as<std::int64_t>(value);
  require<InputError>(number.has_value(), where, ": ", what,
                      " must be a whole number that is not negative and below 2^63");
  return *number;
}

/// Parses one entry of the header. The returned offset is still relative to the start of the data.
TensorInfo parse_tensor(const std::string& name, const json& entry, const std::string& file) {
  require_tensor_name(name, file);
  const std::string where = file + ": tensor \"" + name + "\"";
  require<InputError>(entry.is_object() && entry.size() == 3 && entry.contains("dtype") && entry.contains("shape") &&
                          entry.contains("data_offsets"),
                      where, ": its entry must have exactly dtype, shape and data_offsets");
  const json& dtype = entry.at("dtype");
  const json& shape = entry.at("shape");
  const json& range = entry.at("data_offsets");
  require<InputError>(dtype.is_string(), where, ": dtype must be a string");
  require<InputError>(shape.is_array() && shape.size() <= most_rank, where, ": shape must be an array of at most ",
                      most_rank, " extents");
  require<InputError>(range.is_array() && range.size() == 2, where, ": data_offsets must be two numbers");

  TensorInfo info{.name = name, .dtype = dtype.get<std::string>(), .shape = {}};
  for (const json& extent : shape) info.shape.push_back(whole_number(extent, where, "an extent"));
  info.offset = whole_number(range[0], where, "an offset");
  const std::int64_t end = whole_number(range[1], where, "an offset");
  prefixed(where + ": ", [&] {
    info.elements = elements_of(info.shape);
    info.bytes = checked_multiply(info.elements, bytes_of(info.dtype, where));
  });
  require<InputError>(end >= info.offset && end - info.offset == info.bytes, where, ": data_offsets [", info.offset,
                      ", ", end, "] do not hold ", info.dtype, " ", shape_text(info.shape), ", which is ", info.bytes,
                      " bytes");
  return info;
}

/// Throws InputError if a file begins with the magic bytes of another format.
void require_no_other_format(const std::filesystem::path& path, std::string_view beginning) {
  if (beginning.at(8) == '{') return;  // the length field before it may contain any bytes
  require_no_lfs_pointer(path, beginning);
  require_no_html(path, beginning);
  const Magic* const magic = magic_of(beginning);
  require<InputError>(magic == nullptr, path.string(), ": is ", magic == nullptr ? "" : magic->name,
                      ", and no safetensors file; download the file again");
}

}  // namespace

bool is_weight_type(std::string_view dtype) {
  return dtype == "F64" || dtype == "F32" || dtype == "BF16" || dtype == "F16";
}

SafetensorsFile::SafetensorsFile(std::filesystem::path path, std::shared_ptr<const FileSums> sums)
    : path_(std::move(path)), sums_(std::move(sums)) {
  const std::string file = path_.string();
  file_ = open_file(path_, O_RDONLY | O_NOCTTY | O_NONBLOCK, "opened");
  ::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);  // ranges are long: this doubles the read-ahead
  struct stat status {};
  require<InputError>(::fstat(file_.get(), &status) == 0 && S_ISREG(status.st_mode), file, ": not a regular file");
  const std::int64_t size = status.st_size;
  require<InputError>(size >= 10, file, ": ", size, " bytes are too few for a safetensors file; it was cut short");

  require<InputError>(sums_ == nullptr || size == sums_->bytes, file, ": ", size,
                      " bytes where manifest.json tells of ", sums_ == nullptr ? 0 : sums_->bytes,
                      sums_ != nullptr && size < sums_->bytes ? "; it was cut short" : "; it was changed");

  std::string beginning(std::min<std::size_t>(static_cast<std::size_t>(size), 512), '\0');
  read_all(file_, path_, beginning.data(), beginning.size(), 0);
  require_no_other_format(path_, beginning);
  std::uint64_t length = 0;
  read_checked(file_, path_, sums_.get(), &length, sizeof length, 0);
  require<InputError>(length <= static_cast<std::uint64_t>(most_header_bytes), file, ": a header of ", length,
                      " bytes; at most ", most_header_bytes, " are read. Is this a safetensors file?");
  const auto header_bytes = static_cast<std::int64_t>(length);
  require<InputError>(header_bytes <= size - 8, file, ": its header of ", header_bytes, " bytes goes beyond its ", size,
                      " bytes; it was cut short");
  std::string header(static_cast<std::size_t>(header_bytes), '\0');
  read_checked(file_, path_, sums_.get(), header.data(), header.size(), 8);
  require<InputError>(!header.empty() && header.front() == '{', file,
                      ": its header does not begin with '{'. Is this a safetensors file?");

  const json root = parse_strict(header, file + ": header",
                                 {.depth = 4, .values = 12'000'000, .array = most_rank, .text = 1'000'000});
  for (const auto& [name, entry] : root.items()) {
    if (name != "__metadata__") {
      tensors_.push_back(parse_tensor(name, entry, file));
      continue;
    }
    require<InputError>(entry.is_object(), file, ": __metadata__ must be an object");
    for (const auto& [key, value] : entry.items()) {
      require<InputError>(value.is_string(), file, ": __metadata__ must map strings to strings");
      metadata_.emplace(key, value.get<std::string>());
    }
  }

  std::ranges::sort(tensors_, [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::int64_t expected = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    TensorInfo& info = tensors_[i];
    require<InputError>(info.offset == expected, file, ": tensor \"", info.name, "\" begins at byte ", info.offset,
                        " of the data, not at ", expected, "; tensors must neither overlap nor leave holes");
    expected = checked_add(expected, info.bytes);
    info.offset += 8 + header_bytes;
    by_name_.emplace(info.name, i);
  }
  require<InputError>(expected == size - 8 - header_bytes, file, ": its tensors take ", expected,
                      " bytes and it holds ", size - 8 - header_bytes,
                      expected > size - 8 - header_bytes ? "; it was cut short" : "");
}

void SafetensorsFile::rename(const std::map<std::string, std::string>& names) {
  by_name_.clear();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].name = names.at(tensors_[i].name);
    by_name_.emplace(tensors_[i].name, i);
  }
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  const TensorInfo* info = find(name);
  require<InputError>(info != nullptr, path_.string(), ": has no tensor \"", name, "\"");
  return *info;
}

template <class T>
void SafetensorsFile::read_range(const TensorInfo& tensor, std::int64_t begin, std::int64_t count, T* out) const {
  require(begin >= 0 && count >= 0 && begin <= tensor.elements && count <= tensor.elements - begin, path_.string(),
          ": range of ", count, " elements from ", begin, " is outside tensor \"", tensor.name, "\" of ",
          tensor.elements);
  if (tensor.dtype == "F32" && std::is_same_v<T, float>)
    return read_checked(file_, path_, sums_.get(), out, static_cast<std::size_t>(count) * 4, tensor.offset + begin * 4);
  const auto read_blocks = [&]<class Stored>(Stored) {  // a block at a time
    std::array<Stored, 16384> block;
    std::int64_t offset = tensor.offset + begin * std::int64_t{sizeof(Stored)};
    T* to = out;  // not the captured pointer, which is slower: F16 by 15 %
    for (std::int64_t done = 0; done < count; done += std::ssize(block)) {
      const auto part = std::span(block).first(static_cast<std::size_t>(std::min(count - done, std::ssize(block))));
      read_checked(file_, path_, sums_.get(), part.data(), part.size_bytes(), offset);
      offset += static_cast<std::int64_t>(part.size_bytes());
      for (const Stored value : part) {
        const T read = static_cast<T>(value);
        if constexpr (std::is_same_v<Stored, double>)
          require<InputError>(std::isfinite(read) || !std::isfinite(value), path_.string(), ": tensor \"", tensor.name,
                              "\" holds ", value, ", too large for f32");
        *to++ = read;
      }
    }
  };
  if (tensor.dtype == "F32") return read_blocks(float());
  if (tensor.dtype == "F64") return read_blocks(double());
  if (tensor.dtype == "BF16") return read_blocks(bf16());
  if (tensor.dtype == "F16") return read_blocks(f16());
  throw InputError(message(path_.string(), ": tensor \"", tensor.name, "\" is ", tensor.dtype,
                           "; only F64, F32, BF16 and F16 can be read as weights"));
}

void SafetensorsFile::read_bytes(const TensorInfo& tensor, std::int64_t first, std::span<std::byte> out) const {
  require(first >= 0 && first <= tensor.bytes && std::ssize(out) <= tensor.bytes - first, path_.string(), ": range of ",
          out.size(), " bytes from ", first, " is outside tensor \"", tensor.name, "\" of ", tensor.bytes);
  read_checked(file_, path_, sums_.get(), out.data(), out.size(), tensor.offset + first);
}

template void SafetensorsFile::read_range(const TensorInfo&, std::int64_t, std::int64_t, float*) const;
template void SafetensorsFile::read_range(const TensorInfo&, std::int64_t, std::int64_t, double*) const;

std::optional<std::string> not_finite_in(const SafetensorsFile& file, std::string_view tensor, std::int64_t begin,
                                         std::span<const float> values) {
  const std::int64_t bad = first_not_finite(values);
  if (bad < 0) return std::nullopt;
  return message(file.path().string(), ": ", tensor, "[", begin + bad, "] is ", values[static_cast<std::size_t>(bad)],
                 "; no run can use it. Take the weights from elsewhere");
}

}  // namespace fsdp::checkpoint
