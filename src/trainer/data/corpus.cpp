// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/corpus.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>

#include "../../fsdp/core/value_names.hpp"
#include "files/input_files.hpp"
#include "files/text_files.hpp"
#include "formats/token_files.hpp"

namespace fsdp::data {
namespace {

constexpr ValueNames<TokenFormat::chat> formats("auto", "bytes", "u16", "u32", "chat");

struct FileTokens {
  TokenLayout layout = {};
  std::optional<std::int64_t> tokens = {};  // number of tokens, if the header specifies it
};

/// Copies tokens of a layout, starting at byte `begin`. Negative and too large numbers become 2^32 - 1.
void copy_tokens(const OpenFile& file, std::int64_t begin, const TokenLayout& layout, std::span<std::uint32_t> out) {
  constexpr std::int64_t most = 0xFFFFFFFF;
  const auto width = static_cast<std::size_t>(layout.token_bytes);
  const std::int64_t limit = layout.is_signed ? std::int64_t{1} << (8 * std::min<std::size_t>(width, 4) - 1) : most;
  static const std::int64_t page = ::sysconf(_SC_PAGESIZE);
  const std::int64_t first = begin / page * page;
  const std::size_t length = static_cast<std::size_t>(begin - first) + out.size() * width;
  void* mapped = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.descriptor().get(), first);
  require<InputError>(mapped != MAP_FAILED, file.path().string(), ": cannot be mapped: ", std::strerror(errno));
  const char* token = static_cast<const char*>(mapped) + (begin - first);
  for (std::uint32_t& value : out) {
    const auto read = static_cast<std::int64_t>(little_endian({token, width}));
    value = static_cast<std::uint32_t>(read < 0 || read >= limit ? most : read);
    token += width;
  }
  ::munmap(mapped, length);
}

/// Reads llm.c's header; returns nothing for a file without this header. Throws InputError for an unknown version.
std::optional<FileTokens> llm_c_tokens(const OpenFile& file) {
  const std::string head = file.head();
  if (head.size() < 12) return std::nullopt;
  const auto word = [&](std::size_t i) {
    return static_cast<std::int64_t>(little_endian(std::string_view(head).substr(4 * i, 4)));
  };
  const std::int64_t magic = word(0), version = word(1);
  for (const LlmC& kind : llm_c_kinds) {
    if (kind.magic != magic) continue;
    require<InputError>(version == kind.version, "data: ", file.path().string(), " is a token file of llm.c, version ",
                        version, "; version ", kind.version, " is known");
    return FileTokens{{.token_bytes = kind.token_bytes, .header = llm_c_header_bytes, .text = false}, word(2)};
  }
  return std::nullopt;
}

}  // namespace

void from_text(std::string_view flag, std::string_view text, TokenFormat& value) { value = formats.value(flag, text); }
std::string to_text(TokenFormat value) { return formats.name(value); }

std::string TokenLayout::unit() const {
  if (text) return "bytes";
  return message(is_signed ? "signed " : "", "tokens of ", 8 * token_bytes, " bits");
}

Corpus::Corpus(std::span<const std::filesystem::path> paths, TokenFormat format) {
  require<InputError>(!paths.empty(), "data: no file or folder was given; use --data PATH");
  for (const std::filesystem::path& path : paths) {
    if (const std::optional<TokenFolder> tokens = read_token_folder(path)) {
      require<InputError>(tokens->complete, "data: ", path.string(),
                          ": tokenizing it did not end; run tessera tokenize ", "again, which goes on from there");
      if (tokens->skipped > 0) left_out_.add("not text, when the tokens were made", "", true, tokens->skipped);
      replaced_bytes_ += tokens->replaced;
      for (const TokenShard& shard : tokens->shards) add({.path = path / shard.name, .named = true}, format);
      continue;
    }
    const InputFiles inputs = input_files(std::span(&path, 1));
    left_out_.add(inputs.left_out);
    for (const InputFile& file : inputs.files) add(file, format);
  }
  require<InputError>(size_ > 0, "data: ",
                      layout_.text ? no_text(paths, left_out_) : message(paths.front().string(), " holds no tokens"));
}

void Corpus::add(const InputFile& input, TokenFormat format) {
  const std::filesystem::path& path = input.path;
  if (format == TokenFormat::automatic)
    if (const std::optional<std::filesystem::path> index = megatron_index(path)) {
      const MegatronTokens tokens = read_megatron_index(*index);
      append(megatron_tokens_of(*index),
             {.token_bytes = tokens.token_bytes, .is_signed = tokens.is_signed, .text = false}, 0,
             tokens.tokens * tokens.token_bytes);
      if (tokens.tokens == 0) return;
      files_.back().index = *index;
      indexed_documents_ += tokens.documents;
      return;
    }
  const OpenFile file(path);
  if (file.bytes() <= 0) return;
  std::optional<FileTokens> found;
  if (format == TokenFormat::automatic) found = llm_c_tokens(file);
  if (format == TokenFormat::u16 || format == TokenFormat::u32) {
    found = {.layout = {.token_bytes = format == TokenFormat::u16 ? 2 : 4, .text = false}};
    require<InputError>(!llm_c_tokens(file), "data: ", path.string(), " begins with llm.c's header, and --data-format ",
                        to_text(format), " is of files without one; leave it out");
    require_raw_tokens(file, found->layout.token_bytes, to_text(format));
  }
  if (!found) return add_text(input, format);
  const TokenLayout& layout = found->layout;
  const std::int64_t bytes = file.bytes() - layout.header;
  if (found->tokens)
    require<InputError>(bytes == *found->tokens * layout.token_bytes, "data: ", path.string(), " says that it holds ",
                        *found->tokens, " tokens, which make ", layout.header + *found->tokens * layout.token_bytes,
                        " bytes, and has ", file.bytes(), "; it is cut off or damaged");
  require<InputError>(bytes % layout.token_bytes == 0, "data: ", path.string(), " has ", bytes,
                      " bytes, which are no whole number of ", layout.unit());
  append(path, layout, layout.header, file.bytes());
}

void Corpus::add_text(const InputFile& input, TokenFormat format) {
  const TextCandidate candidate(input.path);
  if (candidate.reading != Reading::text) return leave_out(candidate, input, left_out_);
  require<InputError>(candidate.form == TextForm::text || format == TokenFormat::bytes, "data: ", input.path.string(),
                      " holds records of JSON, whose texts a tokenizer reads; name one by --tokenizer, or say "
                      "--data-format bytes to train on the file as it stands");
  append(input.path, {}, candidate.mark_bytes, candidate.bytes);
}

std::vector<std::int64_t> Corpus::document_borders() const {
  std::vector<std::int64_t> borders;
  for (const CorpusFile& file : files_) {
    require<InputError>(!file.index.empty(), "--document-separator index: ", file.path.string(),
                        " has no index of Megatron-LM; name the token that ends a document instead");
    borders.push_back(file.begin);
    for (const std::int64_t begin : read_megatron_documents(file.index))
      if (begin > 0) borders.push_back(file.begin + begin);
  }
  return borders;
}

bool Corpus::holds(std::uint32_t token) const {
  constexpr std::int64_t at_a_time = 1 << 18;
  std::vector<std::uint32_t> part;
  for (std::int64_t begin = 0; begin < size_; begin += at_a_time) {
    part.resize(static_cast<std::size_t>(std::min(at_a_time, size_ - begin)));
    copy(begin, part);
    if (std::ranges::find(part, token) != part.end()) return true;
  }
  return false;
}

void Corpus::append(const std::filesystem::path& path, const TokenLayout& layout, std::int64_t header,
                    std::int64_t bytes) {
  if (!files_.empty())
    require<InputError>(layout == layout_, "data: ", files_.front().path.string(), " holds ", layout_.unit(), ", and ",
                        path.string(), " ", layout.unit(), "; give one kind alone, or each a weight (PATH:WEIGHT)");
  layout_ = layout;
  if (bytes == header) return;
  files_.push_back({.path = path, .begin = size_, .header = header, .bytes = bytes});
  size_ = checked_add(size_, (bytes - header) / layout.token_bytes);
}

std::string Corpus::losses() const {
  std::string text = left_out_.text();
  if (replaced_bytes_ > 0)
    text += message(text.empty() ? "" : ", ", replaced_bytes_, " bytes that are not Unicode text were read as U+FFFD");
  return text;
}

CorpusPlace Corpus::place_of(std::int64_t token) const {
  require(token >= 0 && token < size_, "data: token ", token, " of ", size_);
  const CorpusFile& file = *(std::ranges::upper_bound(files_, token, {}, &CorpusFile::begin) - 1);
  return {.path = file.path, .byte = file.header + (token - file.begin) * layout_.token_bytes};
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
    copy_tokens(opened, source.header + inside * layout_.token_bytes, layout_,
                out.first(static_cast<std::size_t>(part)));
    out = out.subspan(static_cast<std::size_t>(part));
    begin += part;
    ++file;
  }
}

}  // namespace fsdp::data
