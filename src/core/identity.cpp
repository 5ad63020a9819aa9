// SPDX-License-Identifier: Apache-2.0
#include <fsdp/core/identity.hpp>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>
#include <system_error>
#include <vector>

#include <fsdp/core/error.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/version.hpp>

namespace fsdp {
namespace {

constexpr std::int64_t read_whole = std::int64_t{64} << 20;  // bytes
constexpr std::int64_t block = 4096, blocks = 1024;

class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : path_(path.string()), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status {};
    if (file_ < 0 || ::fstat(file_, &status) != 0) refuse(errno);
    bytes_ = status.st_size;
  }
  OpenFile(OpenFile&&) = delete;
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }

  std::int64_t bytes() const { return bytes_; }
  /// A hash and the file's bytes [begin, begin + buffer.size()), eight at a time, with zeros behind the end.
  std::uint64_t hashed_with(std::uint64_t hash, std::int64_t begin, std::vector<std::uint64_t>& buffer) const {
    auto* const data = reinterpret_cast<char*>(buffer.data());
    const auto wanted = static_cast<std::size_t>(
        std::min<std::int64_t>(std::ssize(buffer) * std::int64_t{sizeof(std::uint64_t)}, bytes_ - begin));
    for (std::size_t got = 0; got < wanted;) {
      const ssize_t now = ::pread(file_, data + got, wanted - got, begin + static_cast<off_t>(got));
      if (now < 0 && errno == EINTR) continue;
      if (now < 0) refuse(errno);
      require<InputError>(now > 0, path_, ": became shorter while it was read");
      got += static_cast<std::size_t>(now);
    }
    std::memset(data + wanted, 0, buffer.size() * sizeof(std::uint64_t) - wanted);
    for (const std::uint64_t word : buffer) hash = mixed(hash ^ word);
    return hash;
  }

 private:
  [[noreturn]] void refuse(int error) const {
    throw InputError(message(path_, ": cannot be read: ", std::strerror(error)));
  }

  std::string path_;
  int file_;
  std::int64_t bytes_ = 0;
};

/// The note that the linker leaves in a program, in hexadecimal digits; empty where it left none.
std::string linker_id() {
  std::string id;
  const auto look = [](dl_phdr_info* info, std::size_t, void* found) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      const ElfW(Phdr)& header = info->dlpi_phdr[i];
      if (header.p_type != PT_NOTE) continue;
      const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
      const auto* const end = at + header.p_memsz;
      while (at + sizeof(ElfW(Nhdr)) <= end) {
        ElfW(Nhdr) note;
        std::memcpy(&note, at, sizeof(note));
        const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
        const char* const name = at + sizeof(note);
        const char* const text = name + padded(note.n_namesz);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
          for (std::size_t byte = 0; byte < note.n_descsz; ++byte)
            for (const int shift : {4, 0})
              *static_cast<std::string*>(found) +=
                  "0123456789abcdef"[static_cast<unsigned char>(text[byte]) >> shift & 15];
        at = text + padded(note.n_descsz);
      }
    }
    return 1;  // the first object is the program
  };
  ::dl_iterate_phdr(look, &id);
  return id;
}

}  // namespace

std::uint64_t digest_of_file(const std::filesystem::path& path) {
  const OpenFile file(path);
  std::uint64_t hash = hashed(hash_seed, file.bytes());
  if (file.bytes() <= read_whole) {
    std::vector<std::uint64_t> buffer(
        static_cast<std::size_t>(std::clamp<std::int64_t>((file.bytes() + 7) / 8, 1, 1 << 15)));
    const std::int64_t step = std::ssize(buffer) * std::int64_t{sizeof(std::uint64_t)};
    for (std::int64_t begin = 0; begin < file.bytes(); begin += step) hash = file.hashed_with(hash, begin, buffer);
    return hash;
  }
  std::vector<std::uint64_t> buffer(block / sizeof(std::uint64_t));
  const std::int64_t step = (file.bytes() - block) / (blocks - 1);
  for (std::int64_t i = 0; i + 1 < blocks; ++i) hash = file.hashed_with(hash, i * step, buffer);
  return file.hashed_with(hash, file.bytes() - block, buffer);
}

std::string digest_text(std::uint64_t digest) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[digest >> shift & 15];
  return text;
}

std::string folder_identity(const std::filesystem::path& folder) {
  std::map<std::string, std::string> lines;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string kind = entry.path().extension().string();
    std::error_code gone;
    if ((kind != ".json" && kind != ".safetensors") || !entry.is_regular_file(gone)) continue;
    const std::string name = entry.path().filename().string();
    lines[name] = message(entry.path().string(), " = ", entry.file_size(gone), " bytes, digest ",
                          digest_text(digest_of_file(entry.path())), "\n");
  }
  require<InputError>(!error, folder.string(), ": cannot be listed: ", error.message());
  std::string text;
  for (const auto& [name, line] : lines) text += line;
  return text;
}

std::string build_identity() {
  static const std::string text = message("build = ", version_string, " ", linker_id(), " by ", __VERSION__, "\n");
  return text;
}

}  // namespace fsdp
