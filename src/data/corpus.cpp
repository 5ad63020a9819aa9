// SPDX-License-Identifier: Apache-2.0
#include <fsdp/data/corpus.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/file.hpp>

namespace fsdp::data {
namespace {

constexpr std::size_t looked_at = 8192;  // bytes in which a NUL makes a file binary

/// A file open for reading, its size, and the part of it that is mapped at the moment.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : path_(path), file_(open_file(path, O_RDONLY, "read")), bytes_(size_of(file_, path)) {}

  std::int64_t bytes() const { return bytes_; }

  /// By read, not by mapping: a fault maps up to 16 neighbouring pages, which would make every small file resident.
  bool begins_with_binary() const {
    std::array<char, looked_at> head;
    const std::size_t length = std::min(head.size(), static_cast<std::size_t>(bytes_));
    read_all(file_, path_, head.data(), length, 0);
    return std::memchr(head.data(), 0, length) != nullptr;
  }

  void copy(std::int64_t begin, std::span<std::uint8_t> out) const {
    static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
    const std::int64_t first = begin / page * page;
    const std::size_t length = static_cast<std::size_t>(begin - first) + out.size();
    void* mapped = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file_.get(), first);
    require<InputError>(mapped != MAP_FAILED, path_.string(), ": cannot be mapped: ", std::strerror(errno));
    std::memcpy(out.data(), static_cast<const char*>(mapped) + (begin - first), out.size());
    ::munmap(mapped, length);
  }

 private:
  const std::filesystem::path& path_;
  FileDescriptor file_;
  std::int64_t bytes_;
};

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

Corpus::Corpus(std::span<const std::filesystem::path> paths) {
  require<InputError>(!paths.empty(), "data: no file or folder was given; use --data PATH");
  for (const std::filesystem::path& path : paths) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    require<InputError>(status.type() != std::filesystem::file_type::not_found, "data: ", path.string(),
                        ": no such file or folder");
    require<InputError>(!error, "data: ", path.string(), ": cannot be read: ", error.message());
    if (std::filesystem::is_directory(status)) {
      for (const std::filesystem::path& file : files_below(path)) add(file);
    } else {
      require<InputError>(std::filesystem::is_regular_file(status), "data: ", path.string(),
                          ": neither a file nor a folder");
      add(path);
    }
  }
  require<InputError>(size_ > 0, "data: ", paths.front().string(), paths.size() > 1 ? " and the others hold" : " holds",
                      " no text (", skipped_, " binary files were skipped)");
}

void Corpus::add(const std::filesystem::path& path) {
  const OpenFile file(path);
  if (file.bytes() <= 0) return;
  if (file.begins_with_binary()) {
    ++skipped_;
    return;
  }
  files_.push_back({.path = path, .begin = size_, .bytes = file.bytes()});
  size_ = checked_add(size_, file.bytes());
}

void Corpus::copy(std::int64_t begin, std::span<std::uint8_t> out) const {
  const auto wanted = static_cast<std::int64_t>(out.size());
  require(begin >= 0 && begin <= size_ && wanted <= size_ - begin, "data: bytes [", begin, ", ", begin + wanted,
          ") are outside the ", size_, " of the data");
  auto file = std::ranges::upper_bound(files_, begin, {}, &CorpusFile::begin);
  while (!out.empty()) {
    const CorpusFile& source = *(file++ - 1);
    const std::int64_t inside = begin - source.begin;
    const std::int64_t part = std::min(source.bytes - inside, static_cast<std::int64_t>(out.size()));
    const OpenFile opened(source.path);
    require<InputError>(opened.bytes() == source.bytes, "data: ", source.path.string(), " had ", source.bytes,
                        " bytes at the start and has ", opened.bytes(),
                        " now; data must not change while they are used");
    opened.copy(inside, out.first(static_cast<std::size_t>(part)));
    out = out.subspan(static_cast<std::size_t>(part));
    begin += part;
  }
}

}  // namespace fsdp::data
