// SPDX-License-Identifier: Apache-2.0
#include <fsdp/data/corpus.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <system_error>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/file.hpp>
#include <fsdp/core/nearest.hpp>

namespace fsdp::data {
namespace {

constexpr std::size_t looked_at = 8192;  // bytes in which a NUL makes a file binary

struct FileTokens {
  TokenLayout layout = {};
  std::optional<std::int64_t> tokens = {};  // where the header says it
};

/// The token files that llm.c writes, one kind for each tokenizer.
struct LlmC {
  std::int64_t magic;
  std::int64_t version;
  TokenLayout layout;
};
constexpr std::array llm_c = {LlmC{20240520, 1, {2, 256 * 4}}, LlmC{20240801, 7, {4, 256 * 4}}};

std::int64_t little_endian(const std::uint8_t* bytes, int count) {
  std::int64_t value = 0;
  for (int i = count; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

/// A file open for reading, its size, and the part of it that is mapped at the moment.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : path_(path), file_(open_file(path, O_RDONLY, "read")), bytes_(size_of(file_, path)) {}

  std::int64_t bytes() const { return bytes_; }

  /// By read, not by mapping: a fault maps up to 16 neighbouring pages, which would make every small file resident.
  std::vector<std::uint8_t> head() const {
    std::vector<std::uint8_t> head(std::min(looked_at, static_cast<std::size_t>(bytes_)));
    read_all(file_, path_, reinterpret_cast<char*>(head.data()), head.size(), 0);
    return head;
  }

  /// Tokens of `width` bytes, the first of which begins at byte `begin`.
  void copy(std::int64_t begin, int width, std::span<std::uint32_t> out) const {
    static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
    const std::int64_t first = begin / page * page;
    const std::size_t length = static_cast<std::size_t>(begin - first) + out.size() * static_cast<std::size_t>(width);
    void* mapped = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file_.get(), first);
    require<InputError>(mapped != MAP_FAILED, path_.string(), ": cannot be mapped: ", std::strerror(errno));
    const std::uint8_t* token = static_cast<const std::uint8_t*>(mapped) + (begin - first);
    for (std::uint32_t& value : out) {
      value = static_cast<std::uint32_t>(little_endian(token, width));
      token += width;
    }
    ::munmap(mapped, length);
  }

 private:
  const std::filesystem::path& path_;
  FileDescriptor file_;
  std::int64_t bytes_;
};

std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  try {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
      if (std::error_code broken_link; entry.is_regular_file(broken_link)) files.push_back(entry.path());
  } catch (const std::filesystem::filesystem_error& error) {
    throw InputError(message("data: ", folder.string(), " cannot be listed: ", error.what()));
  }
  std::ranges::sort(files, {}, [](const std::filesystem::path& path) -> const std::string& { return path.native(); });
  return files;
}

/// That of a file which begins with llm.c's header. Throws InputError where it is of another version.
std::optional<FileTokens> llm_c_tokens(const std::filesystem::path& path, std::span<const std::uint8_t> head) {
  if (head.size() < 12) return std::nullopt;
  const std::int64_t magic = little_endian(head.data(), 4), version = little_endian(head.data() + 4, 4);
  for (const LlmC& kind : llm_c) {
    if (kind.magic != magic) continue;
    require<InputError>(version == kind.version, "data: ", path.string(), " is a token file of llm.c, version ",
                        version, "; version ", kind.version, " is known");
    return FileTokens{kind.layout, little_endian(head.data() + 8, 4)};
  }
  return std::nullopt;
}

/// Nothing where the file is binary and text is wanted.
std::optional<FileTokens> tokens_of(const std::filesystem::path& path, std::span<const std::uint8_t> head,
                                    TokenFormat format) {
  const std::optional<FileTokens> known = format == TokenFormat::bytes ? std::nullopt : llm_c_tokens(path, head);
  if (format == TokenFormat::u16 || format == TokenFormat::u32) {
    require<InputError>(!known, "data: ", path.string(), " begins with llm.c's header, and --data-format ",
                        to_text(format), " is of files without one; leave it out");
    return FileTokens{.layout = {.token_bytes = format == TokenFormat::u16 ? 2 : 4}};
  }
  if (known) return known;
  if (std::ranges::find(head, 0) != head.end()) return std::nullopt;
  return FileTokens{};
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, TokenFormat& value) {
  std::vector<std::string> names;
  for (const auto format : {TokenFormat::automatic, TokenFormat::bytes, TokenFormat::u16, TokenFormat::u32}) {
    names.push_back(to_text(format));
    if (names.back() == text) value = format;
  }
  require<InputError>(std::ranges::find(names, text) != names.end(), "--", flag, " ", text, " is not known; ",
                      suggestion(text, names));
}

std::string to_text(TokenFormat value) {
  switch (value) {
    case TokenFormat::automatic: return "auto";
    case TokenFormat::bytes: return "bytes";
    case TokenFormat::u16: return "u16";
    case TokenFormat::u32: return "u32";
  }
  return "?";
}

std::string TokenLayout::unit() const {
  return token_bytes == 1 ? "bytes" : message("tokens of ", 8 * token_bytes, " bits");
}

Corpus::Corpus(std::span<const std::filesystem::path> paths, TokenFormat format) {
  require<InputError>(!paths.empty(), "data: no file or folder was given; use --data PATH");
  for (const std::filesystem::path& path : paths) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    require<InputError>(status.type() != std::filesystem::file_type::not_found, "data: ", path.string(),
                        ": no such file or folder");
    require<InputError>(!error, "data: ", path.string(), ": cannot be read: ", error.message());
    if (std::filesystem::is_directory(status)) {
      for (const std::filesystem::path& file : files_below(path)) add(file, format);
    } else {
      require<InputError>(std::filesystem::is_regular_file(status), "data: ", path.string(),
                          ": neither a file nor a folder");
      add(path, format);
    }
  }
  require<InputError>(size_ > 0, "data: ", paths.front().string(), paths.size() > 1 ? " and the others hold" : " holds",
                      " no ", layout_.token_bytes == 1 ? "text" : "tokens", " (", skipped_,
                      " binary files were skipped)");
}

void Corpus::add(const std::filesystem::path& path, TokenFormat format) {
  const OpenFile file(path);
  if (file.bytes() <= 0) return;
  const std::optional<FileTokens> found = tokens_of(path, file.head(), format);
  if (!found) {
    ++skipped_;
    return;
  }
  const TokenLayout& layout = found->layout;
  const std::int64_t bytes = file.bytes() - layout.header;
  if (found->tokens)
    require<InputError>(bytes == *found->tokens * layout.token_bytes, "data: ", path.string(), " says that it holds ",
                        *found->tokens, " tokens, which make ", layout.header + *found->tokens * layout.token_bytes,
                        " bytes, and has ", file.bytes(), "; it is cut off or damaged");
  require<InputError>(bytes % layout.token_bytes == 0, "data: ", path.string(), " has ", bytes,
                      " bytes, which are no whole number of ", layout.unit());
  if (!files_.empty())
    require<InputError>(layout == layout_, "data: ", files_.front().path.string(), " holds ", layout_.unit(), ", and ",
                        path.string(), " ", layout.unit(), "; give one kind alone");
  layout_ = layout;
  if (bytes == 0) return;
  files_.push_back({.path = path, .begin = size_, .bytes = file.bytes()});
  size_ = checked_add(size_, bytes / layout.token_bytes);
}

void Corpus::copy(std::int64_t begin, std::span<std::uint32_t> out) const {
  const auto wanted = static_cast<std::int64_t>(out.size());
  require(begin >= 0 && begin <= size_ && wanted <= size_ - begin, "data: tokens [", begin, ", ", begin + wanted,
          ") are outside the ", size_, " of the data");
  auto file = std::ranges::upper_bound(files_, begin, {}, &CorpusFile::begin);
  while (!out.empty()) {
    const CorpusFile& source = *(file - 1);
    const std::int64_t inside = begin - source.begin, end = file == files_.end() ? size_ : file->begin;
    const std::int64_t part = std::min(end - begin, static_cast<std::int64_t>(out.size()));
    const OpenFile opened(source.path);
    require<InputError>(opened.bytes() == source.bytes, "data: ", source.path.string(), " had ", source.bytes,
                        " bytes at the start and has ", opened.bytes(),
                        " now; data must not change while they are used");
    opened.copy(layout_.header + inside * layout_.token_bytes, layout_.token_bytes,
                out.first(static_cast<std::size_t>(part)));
    out = out.subspan(static_cast<std::size_t>(part));
    begin += part;
    ++file;
  }
}

}  // namespace fsdp::data
