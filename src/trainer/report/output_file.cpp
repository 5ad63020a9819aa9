// SPDX-License-Identifier: Apache-2.0
#include "output_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

#include "../../fsdp/checkpoint/posix.hpp"

namespace fsdp::report {
namespace {

using std::filesystem::path;

/// Returns what a path names behind symbolic links, which need not exist.
path named_by(const path& at) {
  std::error_code error;
  path named = std::filesystem::absolute(at, error);
  for (int links = 0; links < 40 && std::filesystem::is_symlink(named, error); ++links)
    named = named.parent_path() / std::filesystem::read_symlink(named, error);
  return std::filesystem::weakly_canonical(named, error);
}

/// Whether a file is written there, and not into a pipe or a device.
bool is_file(const path& at) {
  std::error_code error;
  return !std::filesystem::exists(at, error) || std::filesystem::is_regular_file(at, error);
}

/// Calls use(part) with the file under a temporary name.
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

void require_writable(std::string_view flag, const path& at) {
  std::error_code error;
  const bool existed = std::filesystem::exists(at, error);
  errno = 0;
  const std::ofstream file(at, std::ios::app);
  require<InputError>(file.is_open(), flag, " ", at.string(), ": cannot be written: ", std::strerror(errno));
  if (!existed) std::filesystem::remove(named_by(at), error);  // a failed run leaves no file
  if (is_file(at)) with_part(flag, at, [](checkpoint::PartFile&) {});
}

void write_output(std::string_view flag, const path& at, std::string_view text) {
  if (is_file(at))
    return with_part(flag, at, [&](checkpoint::PartFile& part) {
      part.write(text.data(), text.size(), 0);
      part.finish();
    });
  std::ofstream file(at);
  file << text << std::flush;
  require<InputError>(file.good(), flag, " ", at.string(), ": cannot be written (is the disk full?)");
}

}  // namespace fsdp::report
