// SPDX-License-Identifier: Apache-2.0
#include "input_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <istream>
#include <memory>
#include <sstream>
#include <system_error>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>

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

}  // namespace fsdp::report
