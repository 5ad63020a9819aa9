// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/file.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

namespace {

constexpr std::size_t random_letters = 6;  // length of the suffix that mkdtemp generates

/// Returns whether a folder's name has the form that this file creates: "NAME-PROCESS-LETTERS".
bool has_temporary_form(std::string_view folder, std::string_view name) {
  if (!folder.starts_with(name) || folder.size() <= name.size() + 2 + random_letters) return false;
  folder.remove_prefix(name.size());
  const std::string_view process = folder.substr(1, folder.size() - 2 - random_letters);
  return folder.front() == '-' && folder[1 + process.size()] == '-' &&
         std::ranges::all_of(process, [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// Opens a folder of this user and locks it. The returned descriptor is empty if the folder could not be locked.
/// `wait`: 0, or LOCK_NB.
FileDescriptor locked(const std::filesystem::path& folder, int wait) {
  FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  const bool held = file.open() && ::fstat(file.get(), &status) == 0 && status.st_uid == ::geteuid() &&
                    ::flock(file.get(), LOCK_EX | wait) == 0;
  return held ? std::move(file) : FileDescriptor();
}

/// Removes folders with this name that killed processes left behind: no process holds their locks.
void remove_left_behind(const std::filesystem::path& parent, const std::string& name) {
  std::error_code ignored;
  std::filesystem::directory_iterator entry(parent, ignored), end;
  for (; !ignored && entry != end; entry.increment(ignored)) {
    if (!has_temporary_form(entry->path().filename().string(), name)) continue;
    std::error_code error;
    if (const FileDescriptor file = locked(entry->path(), LOCK_NB); file.open())
      std::filesystem::remove_all(entry->path(), error);
  }
}

}  // namespace

TemporaryFolder::TemporaryFolder(const std::filesystem::path& parent, const std::string& name) {
  remove_left_behind(parent, name);
  std::error_code error;
  do {
    const std::string start = (parent / (name + "-" + std::to_string(::getpid()))).string();
    std::string made = start + '-' + std::string(random_letters, 'X');
    if (::mkdtemp(made.data()) == nullptr) throw_errno(made, "created");
    path_ = made;
    lock_ = locked(path_, 0);
  } while (!std::filesystem::exists(path_, error));  // another process may remove it before it is locked
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace fsdp
