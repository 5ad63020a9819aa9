// SPDX-License-Identifier: Apache-2.0
/// @file
/// Opening and reading files by system calls, with errors that say which file failed and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include <fsdp/core/error.hpp>

namespace fsdp {

/// A file whose content is not what was written.
class DamageError : public InputError {
 public:
  using InputError::InputError;
};

/// What the system said of a file.
class FileError : public InputError {
 public:
  FileError(const std::string& text, int number) : InputError(text), number_(number) {}
  int number() const { return number_; }  ///< an errno
  bool absent() const;                    ///< there is no such file

 private:
  int number_;
};

/// An open file, owned.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return number_; }
  bool open() const { return number_ >= 0; }
  int release() { return std::exchange(number_, -1); }  ///< the caller closes it

 private:
  int number_ = -1;
};

/// Throws FileError "PATH: cannot be WHAT: STRERROR" of errno.
[[noreturn]] void throw_errno(const std::filesystem::path& path, std::string_view what);

/// open(2), closed when a program is executed; `what` was to be done, as in throw_errno. New files have mode 0644.
FileDescriptor open_file(const std::filesystem::path& path, int flags, std::string_view what);

/// Bytes of an open file. Throws FileError.
std::int64_t size_of(const FileDescriptor& file, const std::filesystem::path& path);

/// Throws InputError where the file ends before.
void read_all(const FileDescriptor& file, const std::filesystem::path& path, void* data, std::size_t bytes,
              std::int64_t offset);

inline constexpr std::size_t most_bytes_per_call = std::size_t{1} << 30;  ///< Linux moves at most 2 GiB - 4 KiB

}  // namespace fsdp
