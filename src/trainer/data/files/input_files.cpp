// SPDX-License-Identifier: Apache-2.0
#include "input_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>

#include "../formats/megatron.hpp"

namespace fsdp::data {
namespace {

using Path = std::filesystem::path;

/// Lists the files below a folder.
class Listing {
 public:
  explicit Listing(InputFiles& into) : into_(into) {}

  void read(const Path& folder) {
    std::vector<Path> links;  // links to folders; read last, so that a folder is listed under its own path
    walk(folder, links);
    std::ranges::sort(links);
    for (std::size_t i = 0; i < links.size(); ++i) {
      const Path link = links[i];  // a copy, since walk() appends to `links`
      if (!walk(link, links)) into_.left_out.add("links to folders that are read already", link);
    }
    std::ranges::sort(files_, {}, [](const Path& path) -> const std::string& { return path.native(); });
    for (Path& file : files_) into_.files.push_back({.path = std::move(file)});
  }

 private:
  /// Returns false for a folder that was already walked.
  bool walk(const Path& folder, std::vector<Path>& links) {  // NOLINT(misc-no-recursion): as deep as the folders
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0) throw_errno(folder, "listed");
    if (!walked_.emplace(status.st_dev, status.st_ino).second) return false;
    std::vector<std::filesystem::directory_entry> entries;
    try {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) entries.push_back(entry);
    } catch (const std::filesystem::filesystem_error& error) {
      throw InputError(message("data: ", folder.string(), " cannot be listed: ", error.what()));
    }
    std::ranges::sort(entries, {}, [](const auto& entry) -> const std::string& { return entry.path().native(); });
    for (const std::filesystem::directory_entry& entry : entries) take(entry, links);
    return true;
  }

  void take(const std::filesystem::directory_entry& entry, std::vector<Path>& links) {  // NOLINT(misc-no-recursion)
    const std::string name = entry.path().filename().string();
    std::error_code error;
    const std::filesystem::file_status status = entry.status(error);
    if (name.starts_with('.')) return into_.left_out.add("hidden", entry.path());
    if (status.type() == std::filesystem::file_type::not_found || error == std::errc::too_many_symbolic_link_levels)
      return into_.left_out.add("links to nothing", entry.path());
    if (error) throw InputError(message("data: ", entry.path().string(), " cannot be read: ", error.message()));
    if (std::filesystem::is_directory(status)) {
      if (entry.is_symlink(error))
        links.push_back(entry.path());
      else
        walk(entry.path(), links);
    } else if (name == checkpoint::lock_name) {  // created by a run whose --checkpoint-dir is this folder
      into_.left_out.add("locks of runs", entry.path());
    } else if (is_leftover(name)) {
      into_.left_out.add("leftovers of editors", entry.path());
    } else if (!std::filesystem::is_regular_file(status)) {
      into_.left_out.add("neither files nor folders", entry.path());
    } else {
      files_.push_back(entry.path());
    }
  }

  static bool is_leftover(const std::string& name) {
    return name.ends_with('~') || (name.starts_with('#') && name.ends_with('#')) || name.ends_with(".swp") ||
           name.ends_with(".tmp") || name.ends_with(".bak") || name.ends_with(".orig");
  }

  InputFiles& into_;
  std::vector<Path> files_;
  std::set<std::pair<dev_t, ino_t>> walked_;
};

}  // namespace

InputFiles input_files(std::span<const std::filesystem::path> paths) {
  InputFiles found;
  for (const Path& path : paths) {
    if (const std::optional<Path> index = megatron_index(path)) {
      found.files.push_back({.path = *index, .named = true});
      continue;
    }
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    require<InputError>(status.type() != std::filesystem::file_type::not_found, "data: ", path.string(),
                        ": no such file or folder");
    require<InputError>(!error, "data: ", path.string(), ": cannot be read: ", error.message());
    if (std::filesystem::is_directory(status)) {
      Listing(found).read(path);
    } else {
      require<InputError>(std::filesystem::is_regular_file(status), "data: ", path.string(),
                          ": neither a file nor a folder");
      found.files.push_back({.path = path, .named = true});
    }
  }
  // PREFIX.idx stands for its PREFIX.bin, which must not be read twice.
  std::erase_if(found.files, [&](const InputFile& file) {
    if (file.path.extension() != ".bin") return false;
    const std::optional<Path> index = megatron_index(file.path);
    return index && std::ranges::find(found.files, *index, &InputFile::path) != found.files.end();
  });
  return found;
}

OpenFile::OpenFile(const std::filesystem::path& path)
    : path_(path), file_(open_file(path, O_RDONLY, "read")), bytes_(size_of(file_, path)) {}

std::string OpenFile::head() const {
  constexpr std::int64_t looked_at = 8192;
  std::string head(static_cast<std::size_t>(std::min(looked_at, bytes_)), '\0');
  read(0, head);
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
