// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

#include "../../fsdp/checkpoint/posix.hpp"

namespace fsdp::report {
namespace {

using std::filesystem::path;

/// Resolves the symbolic links of a path. The target need not exist.
path named_by(const path& at) {
  std::error_code error;
  path named = std::filesystem::absolute(at, error);
  for (int links = 0; links < 40 && std::filesystem::is_symlink(named, error); ++links)
    named = named.parent_path() / std::filesystem::read_symlink(named, error);
  return std::filesystem::weakly_canonical(named, error);
}

/// Returns whether the path is a regular file or does not exist, and is not a pipe or a device.
bool is_file(const path& at) {
  std::error_code error;
  return !std::filesystem::exists(at, error) || std::filesystem::is_regular_file(at, error);
}

/// Opens a FIFO without waiting for its reader. Returns nothing for other files, and for a FIFO that may not be opened.
FileDescriptor opened_fifo(std::string_view flag, const path& at) {
  std::error_code error;
  if (!std::filesystem::is_fifo(at, error)) return {};
  FileDescriptor fifo(::open(at.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  require<InputError>(fifo.open() || errno != ENXIO, flag, " ", at.string(),
                      ": is a FIFO without a reader; start the reader first");
  return fifo;
}

/// Calls use(part) with a temporary file that then replaces the file.
void with_part(std::string_view flag, const path& at, FunctionRef<void(checkpoint::PartFile&)> use) {
  path named = named_by(at), part = named;
  part += ".part";
  try {
    checkpoint::PartFile file(std::move(part), std::move(named));
    use(file);
  } catch (const InputError& failure) {
    throw InputError(message(flag, " ", failure.what()));
  }
}

}  // namespace

std::ofstream open_to_append(std::string_view flag, const path& at, std::ios::openmode mode) {
  const FileDescriptor fifo = opened_fifo(flag, at);  // while it is open, opening the FIFO again does not wait
  errno = 0;
  std::ofstream file(at, std::ios::app | mode);
  require<InputError>(file.is_open(), flag, " ", at.string(), ": cannot be written: ", std::strerror(errno));
  return file;
}

FileDescriptor require_writable(std::string_view flag, const path& at) {
  FileDescriptor fifo = opened_fifo(flag, at);
  std::error_code error;
  const bool existed = std::filesystem::exists(at, error);
  open_to_append(flag, at).close();
  if (!existed) std::filesystem::remove(named_by(at), error);  // a failed run must not leave a file
  if (is_file(at)) with_part(flag, at, [](checkpoint::PartFile&) {});
  return fifo;
}

void write_output(std::string_view flag, const path& at, std::string_view text) {
  if (is_file(at))
    return with_part(flag, at, [&](checkpoint::PartFile& part) {
      part.write(text.data(), text.size(), 0);
      part.finish();
    });
  std::ofstream file = open_to_append(flag, at);
  file << text << std::flush;
  require<InputError>(file.good(), flag, " ", at.string(), ": cannot be written (is the disk full?)");
}

}  // namespace fsdp::report
