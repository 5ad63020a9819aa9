// SPDX-License-Identifier: Apache-2.0
#include "posix.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../core/paths.hpp"
#include "states_plan.hpp"

namespace fsdp::checkpoint {

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

void sync_file(const FileDescriptor& file, const std::filesystem::path& path) {
  int status = 0;
  do status = ::fsync(file.get());
  while (status != 0 && errno == EINTR);
  if (status != 0) throw_errno(path, "synced to disk");
}

void close_file(FileDescriptor& file, const std::filesystem::path& path) {
  // On Linux close always closes the descriptor, so that EINTR is not an error.
  if (::close(file.release()) != 0 && errno != EINTR) throw_errno(path, "closed after it was written");
}

namespace {

FileDescriptor created(const std::filesystem::path& path) {
  return open_file(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, "created");
}

/// Replaces any file that a killed run left at this path.
FileDescriptor created_anew(const std::filesystem::path& path) {
  ::unlink(path.c_str());
  return created(path);
}

}  // namespace

void write_new_file(const std::filesystem::path& path, std::string_view content) {
  FileDescriptor file = created(path);
  write_all(file, path, content.data(), content.size(), 0);
  sync_file(file, path);
  close_file(file, path);
}

PartFile::PartFile(std::filesystem::path part, std::filesystem::path path)
    : part_(std::move(part)), path_(std::move(path)), file_(created_anew(part_)) {}

PartFile::~PartFile() {
  if (!part_.empty()) ::unlink(part_.c_str());
}

void PartFile::finish() {
  sync_file(file_, part_);
  close_file(file_, part_);
  if (::rename(part_.c_str(), path_.c_str()) != 0) throw_errno(path_, "written");
  part_.clear();
  sync_directory(path_.parent_path());
}

void sync_directory(const std::filesystem::path& path) {
  const FileDescriptor directory = open_file(path, O_RDONLY | O_DIRECTORY, "opened");
  int status = 0;
  do status = ::fsync(directory.get());
  while (status != 0 && errno == EINTR);
  if (status != 0 && errno != EINVAL) throw_errno(path, "synced to disk");  // EINVAL: the file does not support syncing
}

std::vector<std::filesystem::path> make_folders(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> made;
  for (std::filesystem::path each = path; !each.empty() && !path_exists(each); each = each.parent_path())
    made.push_back(each);
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return made;
  remove_made(made);
  throw FileError(message(path.string(), ": cannot be created: ", error.message()), error.value());
}

void remove_made(const std::vector<std::filesystem::path>& made) noexcept {
  for (const std::filesystem::path& each : made) ::rmdir(each.c_str());
}

std::optional<std::int64_t> bytes_left(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(path, error);
  while (!path_exists(there) && there.has_relative_path()) there = there.parent_path();
  struct statvfs disk {};
  if (::statvfs(there.c_str(), &disk) != 0) return std::nullopt;
  const double bytes = static_cast<double>(disk.f_bavail) * static_cast<double>(disk.f_frsize);
  return static_cast<std::int64_t>(std::min(bytes, 0x1p62));
}

void require_room(const std::filesystem::path& dir, const Listing& model, const OptimizerStates& states,
                  std::int64_t kept, const Warn& warn) {
  const std::optional<std::int64_t> left = bytes_left(dir);
  if (!left) return;
  const std::int64_t needed =
      checked_add(plan_file(model.parameters).file_bytes, plan_states(states, model.parameters).file_bytes);
  require<InputError>(needed <= *left, dir.string(), ": a checkpoint takes ", needed, " bytes and its disk has ", *left,
                      " left: No space left on device. Make room, or choose another folder");
  if (warn && static_cast<double>(needed) * static_cast<double>(kept) > static_cast<double>(*left))
    warn(message(dir.string(), ": ", kept, " checkpoints of ", needed, " bytes each will not fit into the ", *left,
                 " bytes that its disk has left"));
}

}  // namespace fsdp::checkpoint
