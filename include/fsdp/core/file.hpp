// SPDX-License-Identifier: Apache-2.0
/// @file
/// Opens and reads files by system calls, and makes temporary folders. Errors report the file and the reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// The content of a file differs from the content that was written.
class DamageError : public InputError {
 public:
  using InputError::InputError;
};

/// A system call on a file failed.
class FileError : public InputError {
 public:
  FileError(const std::string& text, int number) : InputError(text), number_(number) {}
  int number() const { return number_; }  ///< value of errno after the failed call
  bool absent() const;                    ///< whether the file does not exist

 private:
  int number_;
};

/// Owns an open file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  int release() { return std::exchange(number_, -1); }  ///< gives up ownership: the caller closes the descriptor

 private:
  int number_ = -1;
};

/// Throws FileError "PATH: cannot be WHAT: STRERROR" for the current errno.
[[noreturn]] void throw_errno(const std::filesystem::path& path, std::string_view what);

/// Opens a file by open(2) with O_CLOEXEC and O_NONBLOCK, which affects only FIFOs; new files have mode 0644. Throws as
/// throw_errno does, with `what`.
FileDescriptor open_file(const std::filesystem::path& path, int flags, std::string_view what);

/// Returns the size of an open file in bytes. Throws FileError.
std::int64_t size_of(const FileDescriptor& file, const std::filesystem::path& path);

/// Reads exactly `bytes` at `offset` into `data`. Throws InputError if the file ends before that.
void read_all(const FileDescriptor& file, const std::filesystem::path& path, void* data, std::size_t bytes,
              std::int64_t offset);

/// Limit of one read or write; Linux transfers at most 2 GiB - 4 KiB.
inline constexpr std::size_t most_bytes_per_call = std::size_t{1} << 30;

class TemporaryFolder {
 public:
  /// Creates a folder in `parent` whose name begins with `name`, and removes such folders of processes that have ended.
  /// Throws FileError.
  TemporaryFolder(const std::filesystem::path& parent, const std::string& name);
  TemporaryFolder(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  FileDescriptor lock_;  ///< lock on the folder during the life of this process
};

}  // namespace fsdp
