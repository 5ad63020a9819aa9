// SPDX-License-Identifier: Apache-2.0
#include "input_files.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <system_error>

#include <fsdp/core/error.hpp>
#include <fsdp/core/hash.hpp>

#include "megatron.hpp"

namespace fsdp::data {
namespace {

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (std::error_code broken_link; entry.is_regular_file(broken_link)) files.push_back(entry.path());
  } catch (const std::filesystem::filesystem_error& error) {
    throw InputError(message("data: ", folder.string(), " cannot be listed: ", error.what()));
  }
  std::ranges::sort(files, {}, [](const std::filesystem::path& path) -> const std::string& { return path.native(); });
  return files;
}

}  // namespace

std::vector<std::filesystem::path> input_files(std::span<const std::filesystem::path> paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    if (const std::optional<std::filesystem::path> index = megatron_index(path)) {
      files.push_back(*index);
      continue;
    }
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    require<InputError>(status.type() != std::filesystem::file_type::not_found, "data: ", path.string(),
                        ": no such file or folder");
    require<InputError>(!error, "data: ", path.string(), ": cannot be read: ", error.message());
    if (std::filesystem::is_directory(status)) {
      for (std::filesystem::path& file : files_below(path)) files.push_back(std::move(file));
    } else {
      require<InputError>(std::filesystem::is_regular_file(status), "data: ", path.string(),
                          ": neither a file nor a folder");
      files.push_back(path);
    }
  }
  // PREFIX.idx stands for its PREFIX.bin, which must not be read twice.
  std::erase_if(files, [&](const std::filesystem::path& path) {
    if (path.extension() != ".bin") return false;
    const std::optional<std::filesystem::path> index = megatron_index(path);
    return index && std::ranges::find(files, *index) != files.end();
  });
  return files;
}

bool is_binary(std::span<const std::uint8_t> bytes) { return std::ranges::find(bytes, 0) != bytes.end(); }

std::vector<std::uint8_t> head_of(const FileDescriptor& file, const std::filesystem::path& path) {
  constexpr std::int64_t looked_at = 8192;
  std::vector<std::uint8_t> head(static_cast<std::size_t>(std::min(looked_at, size_of(file, path))));
  read_all(file, path, head.data(), head.size(), 0);
  return head;
}

std::uint64_t hashed_state(std::uint64_t hash, const std::filesystem::path& file) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) throw_errno(file, "read");
  std::error_code error;
  hash = hashed(hash, std::filesystem::weakly_canonical(file, error).native());
  hash = hashed(hash, std::int64_t{status.st_size});
  return hashed(hash, std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec);
}

}  // namespace fsdp::data
