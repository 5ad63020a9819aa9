// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <memory>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

#include "../../fsdp/checkpoint/posix.hpp"

namespace fsdp::report {
namespace {

/// Reads a FIFO until its writers have closed it. Without a writer, a read returns the end of the file, not EAGAIN.
std::string text_of_fifo(std::string_view where, const std::filesystem::path& path) {
  const FileDescriptor file = open_file(path, O_RDONLY | O_NONBLOCK, "read");
  std::string text;
  std::array<char, 65536> block;
  for (bool has_writer = false;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    has_writer = has_writer || got > 0 || (got < 0 && errno == EAGAIN);
    if (got > 0) {
      text.append(block.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      require<InputError>(has_writer, where, path.string(), ": is a FIFO without a writer; start the writer first");
      return text;
    } else if (errno == EAGAIN) {
      pollfd state{.fd = file.get(), .events = POLLIN, .revents = 0};
      static_cast<void>(::poll(&state, 1, -1));
    } else if (errno != EINTR) {
      throw_errno(path, "read");
    }
  }
}

std::unique_ptr<std::istream> opened(std::string_view where, const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::is_fifo(path, error)) return std::make_unique<std::istringstream>(text_of_fifo(where, path));
  errno = 0;
  auto file = std::make_unique<std::ifstream>(path);
  const int number = std::filesystem::is_directory(path, error) ? EISDIR : errno;
  require<InputError>(file->is_open() && number != EISDIR, where, path.string(),
                      ": cannot be read: ", std::strerror(number));
  return file;
}

}  // namespace

void read_lines(std::string_view where, const std::filesystem::path& path,
                FunctionRef<void(std::int64_t number, const std::string& text)> take) {
  const std::unique_ptr<std::istream> file = opened(where, path);
  std::string text;
  for (std::int64_t number = 1; std::getline(*file, text); ++number) take(number, text);
  require<InputError>(!file->bad(), where, path.string(), ": cannot be read: ", std::strerror(errno));
}

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
