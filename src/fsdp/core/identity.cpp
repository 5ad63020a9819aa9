// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/identity.hpp>

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/version.hpp>

#include "strings.hpp"

namespace fsdp {
namespace {

constexpr std::int64_t block = 4096;  // bytes

/// Extends a hash by the file's bytes [begin, begin + buffer.size()), eight at a time, with zeros after the end of the
/// file.
std::uint64_t hashed_with(std::uint64_t hash, const FileDescriptor& file, const std::filesystem::path& path,
                          std::int64_t file_bytes, std::int64_t begin, std::vector<std::uint64_t>& buffer) {
  const std::size_t room = buffer.size() * sizeof(std::uint64_t);
  const auto bytes = std::min(room, static_cast<std::size_t>(file_bytes - begin));
  auto* const data = reinterpret_cast<char*>(buffer.data());
  read_all(file, path, data, bytes, begin);
  std::memset(data + bytes, 0, room - bytes);
  for (const std::uint64_t word : buffer) hash = mixed(hash ^ word);
  return hash;
}

/// Returns the build id that the linker stored in the program, in hexadecimal digits; empty if there is none.
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
            *static_cast<std::string*>(found) += hexadecimal(static_cast<unsigned char>(text[byte]), 2);
        at = text + padded(note.n_descsz);
      }
    }
    return 1;  // stops: the first object is the program
  };
  ::dl_iterate_phdr(look, &id);
  return id;
}

}  // namespace

std::uint64_t digest_of_file(const std::filesystem::path& path, const FileSample& at) {
  const FileDescriptor file = open_file(path, O_RDONLY, "read");
  const std::int64_t bytes = size_of(file, path);
  std::uint64_t hash = hashed(hash_seed, bytes);
  const auto add = [&](std::int64_t begin, std::vector<std::uint64_t>& buffer) {
    hash = hashed_with(hash, file, path, bytes, begin, buffer);
  };
  if (bytes <= at.whole) {
    std::vector<std::uint64_t> buffer(static_cast<std::size_t>(std::clamp<std::int64_t>((bytes + 7) / 8, 1, 1 << 15)));
    const std::int64_t step = std::ssize(buffer) * std::int64_t{sizeof(std::uint64_t)};
    for (std::int64_t begin = 0; begin < bytes; begin += step) add(begin, buffer);
    return hash;
  }
  std::vector<std::uint64_t> buffer(block / sizeof(std::uint64_t));
  const std::int64_t step = (bytes - block) / (at.blocks - 1);
  for (std::int64_t i = 0; i + 1 < at.blocks; ++i) add(i * step, buffer);
  add(bytes - block, buffer);
  return hash;
}

std::string digest_text(std::uint64_t digest) { return hexadecimal(digest, 16); }

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

std::string build_identity() {
  static const std::string text = message("build = ", version_string, " ", linker_id(), " by ", __VERSION__, "\n");
  return text;
}

}  // namespace fsdp
