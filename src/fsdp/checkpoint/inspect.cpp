// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/inspect.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

#include "manifest.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t piece_bytes = 4 << 20;
constexpr std::size_t most_sentences = 10;

/// Throws InputError, which reports the file, unless it matches its checksums. Calls `piece` with the number of bytes
/// of each piece.
void check_file(const std::filesystem::path& path, const FileSums& sums,
                const std::function<void(std::int64_t)>& piece) {
  const FileDescriptor file = open_file(path, O_RDONLY | O_NOCTTY | O_NONBLOCK, "opened");
  const std::int64_t bytes = size_of(file, path);
  require<InputError>(bytes == sums.bytes, path.string(), ": ", bytes, " bytes where manifest.json tells of ",
                      sums.bytes, bytes < sums.bytes ? "; it was cut short" : "; it was changed");
  const std::int64_t most = std::max(piece_bytes, sums.chunk_bytes);  // powers of two, so that pieces are whole chunks
  std::vector<std::byte> content(static_cast<std::size_t>(std::min(most, bytes)));
  for (std::int64_t begin = 0; begin < bytes; begin += most) {
    const std::int64_t length = std::min(most, bytes - begin);
    read_checked(file, path, &sums, content.data(), static_cast<std::size_t>(length), begin);
    piece(length);
  }
}

/// Returns a message about the first value of a tensor that is not finite; nothing if all are finite.
std::optional<std::string> not_finite(const SafetensorsFile& file, const TensorInfo& tensor,
                                      const std::function<void(std::int64_t)>& piece) {
  std::vector<float> values;
  for (std::int64_t begin = 0; begin < tensor.elements; begin += piece_elements) {
    const std::int64_t count = std::min(piece_elements, tensor.elements - begin);
    values.resize(static_cast<std::size_t>(count));
    try {
      file.read_range(tensor, begin, count, values.data());
    } catch (const FileError&) {
      throw;
    } catch (const InputError& error) {
      return error.what();
    }
    if (auto sentence = not_finite_in(file, tensor.name, begin, values)) return sentence;
    piece(count * (tensor.bytes / tensor.elements));
  }
  return std::nullopt;
}

}  // namespace

std::string codec_of(const SafetensorsFile& file, const TensorInfo& tensor) {
  if (tensor.dtype == "F32" || tensor.dtype == "BF16") return tensor.dtype == "F32" ? "float" : "bf16";  // Plain::text
  const auto found = file.metadata().find(tensor.name);
  return found == file.metadata().end() ? std::string() : found->second;
}

std::vector<std::string> damaged_files(const std::filesystem::path& folder, const ReadProgress& progress) {
  const std::optional<Manifest> manifest = read_manifest(folder);
  if (!manifest) return {};
  std::int64_t done = 0, all = 0;
  for (const auto& [name, sums] : manifest->files) all += sums.bytes;
  std::vector<std::string> damage;
  for (const auto& [name, sums] : manifest->files) {
    try {
      require<InputError>(name.find('/') == std::string::npos, folder.string(), ": manifest.json lists ", name);
      check_file(folder / name, sums, [&](std::int64_t bytes) {
        done += bytes;
        if (progress) progress(done, all);
      });
    } catch (const InputError& error) {
      damage.emplace_back(error.what());
    }
  }
  return damage;
}

std::vector<std::string> not_finite_in(std::span<const SafetensorsFile> files, const ReadProgress& progress,
                                       const std::function<bool(const std::string&)>& ignored) {
  const auto reads = [&](const TensorInfo& tensor) {
    return is_weight_type(tensor.dtype) && tensor.elements > 0 && !(ignored && ignored(tensor.name));
  };
  std::int64_t done = 0, all = 0;
  for (const SafetensorsFile& file : files)
    for (const TensorInfo& tensor : file.tensors()) all += reads(tensor) ? tensor.bytes : 0;
  std::vector<std::string> sentences;
  std::size_t more = 0;
  for (const SafetensorsFile& file : files)
    for (const TensorInfo& tensor : file.tensors()) {
      if (!reads(tensor)) continue;
      const std::int64_t before = done;
      std::optional<std::string> sentence = not_finite(file, tensor, [&](std::int64_t bytes) {
        done += bytes;
        if (progress) progress(done, all);
      });
      done = before + tensor.bytes;
      if (!sentence) continue;
      if (sentences.size() < most_sentences)
        sentences.push_back(*std::move(sentence));
      else
        ++more;
    }
  if (more > 0) sentences.push_back(message(more, " more tensors have values that are not finite"));
  return sentences;
}

}  // namespace fsdp::checkpoint
