// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/file.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace fsdp {

bool FileError::absent() const { return number_ == ENOENT || number_ == ENOTDIR; }

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
  std::error_code error;
  if (const auto target = number == ENOENT ? std::filesystem::read_symlink(path, error) : std::filesystem::path();
      !target.empty())
    throw FileError(message(path.string(), ": cannot be ", what, ": it is a broken symbolic link to ", target.string(),
                            "; if it was downloaded, download the folder again"),
                    number);
  const char* const advice =
      number == EMFILE
          ? "; `ulimit -n` says how many one process may hold open: raise it, or take fewer ranks as threads"
          : "";
  throw FileError(message(path.string(), ": cannot be ", what, ": ", std::strerror(number), advice), number);
}

FileDescriptor open_file(const std::filesystem::path& path, int flags, std::string_view what) {
  FileDescriptor file;
  do
    file = FileDescriptor(
        // O_NONBLOCK: does not wait for the other end of a FIFO
        ::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644));
  while (!file.open() && errno == EINTR);
  if (!file.open()) throw_errno(path, what);
  return file;
}

std::int64_t size_of(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_errno(path, "read");
  return status.st_size;
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

}  // namespace fsdp
