// SPDX-License-Identifier: Apache-2.0
#include "posix.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fsdp/core/error.hpp>

#include "../models/strict_json.hpp"

namespace fsdp::checkpoint {

namespace {
constexpr std::size_t most_bytes_per_call = std::size_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB in one call
}

FileDescriptor::FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (number_ >= 0) ::close(number_);
}

void throw_errno(const std::filesystem::path& path, std::string_view what) {
  const int number = errno;
  throw FileError(message(path.string(), ": cannot be ", what, ": ", std::strerror(number)), number);
}

FileDescriptor open_file(const std::filesystem::path& path, int flags, std::string_view what) {
  FileDescriptor file;
  do file = FileDescriptor(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  while (!file.open() && errno == EINTR);
  if (!file.open()) throw_errno(path, what);
  return file;
}

void write_all(const FileDescriptor& file, const std::filesystem::path& path, const void* data, std::size_t bytes,
               std::int64_t offset) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::pwrite(file.get(), from, std::min(bytes, most_bytes_per_call), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_errno(path, "written");
    require<InputError>(written > 0, path.string(), ": cannot be written: the system takes none of its bytes at ",
                        offset);
    from += written;
    offset += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

void read_all(const FileDescriptor& file, const std::filesystem::path& path, void* data, std::size_t bytes,
              std::int64_t offset) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::pread(file.get(), to, std::min(bytes, most_bytes_per_call), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno(path, "read");
    require<InputError>(got > 0, path.string(), ": ends at byte ", offset, ", ", bytes,
                        " bytes too early; it was cut short while it was read");
    to += got;
    offset += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

void sync_file(const FileDescriptor& file, const std::filesystem::path& path) {
  int status = 0;
  do status = ::fsync(file.get());
  while (status != 0 && errno == EINTR);
  if (status != 0) throw_errno(path, "synced to disk");
}

void close_file(FileDescriptor& file, const std::filesystem::path& path) {
  // On Linux the descriptor is closed whatever close says, and EINTR is no error.
  if (::close(file.release()) != 0 && errno != EINTR) throw_errno(path, "closed after it was written");
}

void write_new_file(const std::filesystem::path& path, std::string_view content) {
  FileDescriptor file = open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, "created");
  write_all(file, path, content.data(), content.size(), 0);
  sync_file(file, path);
  close_file(file, path);
}

void sync_directory(const std::filesystem::path& path) {
  const FileDescriptor directory = open_file(path, O_RDONLY | O_DIRECTORY, "opened");
  int status = 0;
  do status = ::fsync(directory.get());
  while (status != 0 && errno == EINTR);
  if (status != 0 && errno != EINVAL) throw_errno(path, "synced to disk");  // EINVAL: not supported
}

}  // namespace fsdp::checkpoint
