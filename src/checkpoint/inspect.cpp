// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/inspect.hpp>

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <optional>

#include <fsdp/core/error.hpp>

#include "manifest.hpp"
#include "step_folders.hpp"

namespace fsdp::checkpoint {
namespace {

constexpr std::int64_t piece_bytes = 4 << 20;

/// Throws InputError, which names the file, unless it is what was written. Calls `piece` with the bytes of each piece.
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

}  // namespace

std::vector<std::filesystem::path> steps_in(const std::filesystem::path& dir, const Warn& warn) {
  return finished(dir, warn);
}

std::vector<std::string> damage_in(const std::filesystem::path& folder, const ReadProgress& progress) {
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

}  // namespace fsdp::checkpoint
