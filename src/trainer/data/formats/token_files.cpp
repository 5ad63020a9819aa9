// SPDX-License-Identifier: Apache-2.0
#include "token_files.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <system_error>
#include <utility>

#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../../../fsdp/core/json/strict_json.hpp"
#include "../../../fsdp/core/paths.hpp"

namespace fsdp::data {
namespace {

constexpr std::int64_t most_json_bytes = 50'000'000;
constexpr JsonLimits folder_limits{.values = 10'000'000, .array = 1'000'000};

std::string name_of_shard(std::size_t number) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "tokens_%06zu.bin", number);
  return name.data();
}

constexpr std::string_view index_magic("MMIDIDX\0\0", 9);
constexpr std::int64_t index_header_bytes = 9 + 8 + 1 + 8 + 8;
constexpr std::int64_t entries_at_a_time = 1 << 16;  // number of index entries to read at a time

struct TokenType {
  std::string_view name;
  int bytes = 0;  ///< bytes of a token; 0: not a type of tokens
  bool is_signed = false;
};
constexpr std::array<TokenType, 9> token_types = {TokenType{"?"},     {"uint8", 1, false}, {"int8", 1, true},
                                                  {"int16", 2, true}, {"int32", 4, true},  {"int64", 8, true},
                                                  {"float64"},        {"float32"},         {"uint16", 2, false}};

/// The beginning of an index, checked against its size.
struct Header {
  Header(const OpenFile& index, const std::string& name) {
    require<InputError>(index.bytes() >= index_header_bytes, name, " has ", index.bytes(),
                        " bytes, fewer than its header's ", index_header_bytes, "; it is cut off");
    const std::string head = index.head();
    const auto word = [&](std::size_t at) { return little_endian(std::string_view(head).substr(at, 8)); };
    const std::uint64_t version = word(9);
    require<InputError>(version == 1, name, " is an index of version ", version, "; version 1 is known");
    const auto code = static_cast<std::uint8_t>(head[17]);
    type = code < token_types.size() ? token_types[code] : TokenType{"?"};
    require<InputError>(type.bytes > 0, name, " says that tokens are of type ", int{code}, " (", type.name,
                        "); uint8, int8, int16, int32, int64 and uint16 can be read");
    const std::uint64_t all = word(18), listed = word(26);
    const auto room = static_cast<std::uint64_t>(index.bytes() - index_header_bytes);
    const bool fits = all <= room / 12 && listed <= room / 8;
    const std::uint64_t bytes = fits ? all * 12 + listed * 8 : 0;
    has_modes = fits && all > 0 && bytes + all == room;
    require<InputError>(has_modes || (fits && bytes == room), name, " says that it holds ", all, " sequences and ",
                        listed, " documents, and has ", index.bytes(), " bytes; it is cut off or damaged");
    sequences = static_cast<std::int64_t>(all);
    documents = static_cast<std::int64_t>(listed);
  }

  std::int64_t places_at() const { return index_header_bytes + 4 * sequences; }
  std::int64_t documents_at() const { return index_header_bytes + 12 * sequences; }

  TokenType type;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;  ///< number of entries, including the one at the end
  bool has_modes = false;
};

}  // namespace

std::int64_t TokenFolder::tokens() const {
  std::int64_t sum = 0;
  for (const TokenShard& shard : shards) sum += shard.tokens;
  return sum;
}

std::optional<TokenFolder> read_token_folder(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / token_folder_file;
  if (!path_exists(path)) return std::nullopt;
  const nlohmann::json root = parse_strict(read_small_file(path, most_json_bytes), path.string(), folder_limits);
  const auto damaged = [&]() -> InputError {
    return InputError(
        message("data: ", path.string(), " is not what was written; delete the folder and tokenize anew"));
  };
  try {
    if (root.at("format") != "tessera tokens 1") throw damaged();
    TokenFolder contents{.made_of = root.at("made_of"),
                         .token_bytes = root.at("token_bytes"),
                         .place = {.file = root.at("file"), .byte = root.at("byte"), .line = root.at("line")},
                         .skip = root.at("skip"),
                         .documents = root.at("documents"),
                         .skipped = root.value("skipped", std::int64_t{0}),  // older folders do not contain the counts
                         .replaced = root.value("replaced", std::int64_t{0}),
                         .replaced_in_file = root.value("replaced_in_file", std::int64_t{0}),
                         .complete = root.at("complete")};
    for (const nlohmann::json& shard : root.at("shards")) {
      contents.shards.push_back({.name = name_of_shard(contents.shards.size()), .tokens = shard});
      if (contents.shards.back().tokens < 1) throw damaged();
    }
    const TextPlace& place = contents.place;
    if (place.file < 0 || place.byte < 0 || place.line < 1 || contents.skip < 0) throw damaged();
    if (contents.token_bytes != 2 && contents.token_bytes != 4) throw damaged();
    return contents;
  } catch (const nlohmann::json::exception&) {
    throw damaged();
  }
}

void write_token_folder(const std::filesystem::path& folder, const TokenFolder& contents) {
  auto shards = nlohmann::ordered_json::array();
  for (const TokenShard& shard : contents.shards) shards.push_back(shard.tokens);
  const std::string text = object_text({{"format", "tessera tokens 1"},
                                        {"made_of", contents.made_of},
                                        {"token_bytes", contents.token_bytes},
                                        {"documents", contents.documents},
                                        {"skipped", contents.skipped},
                                        {"replaced", contents.replaced},
                                        {"replaced_in_file", contents.replaced_in_file},
                                        {"complete", contents.complete},
                                        {"file", contents.place.file},
                                        {"byte", contents.place.byte},
                                        {"line", contents.place.line},
                                        {"skip", contents.skip},
                                        {"shards", shards}}) +
                           "\n";
  checkpoint::PartFile file(folder / "tokens.json.part", folder / token_folder_file);
  file.write(text.data(), text.size(), 0);
  file.finish();
}

TokenWriter::TokenWriter(std::filesystem::path folder, TokenFolder& contents, std::int64_t shard_tokens)
    : folder_(std::move(folder)),
      contents_(&contents),
      shard_tokens_(shard_tokens),
      skip_(static_cast<std::size_t>(contents.skip)) {}

void TokenWriter::append(std::span<const text::TokenId> ids, const TextPlace& place) {
  const int width = contents_->token_bytes;
  for (std::size_t at = std::exchange(skip_, 0); at < ids.size();) {
    if (!file_) {
      const std::string name = name_of_shard(contents_->shards.size());
      file_.emplace(folder_ / (name + ".part"), folder_ / name);
    }
    const std::size_t count = std::min(ids.size() - at, static_cast<std::size_t>(shard_tokens_ - tokens_));
    buffer_.clear();
    for (const text::TokenId& id : ids.subspan(at, count))  // little-endian
      buffer_.append(reinterpret_cast<const char*>(&id), static_cast<std::size_t>(width));
    file_->write(buffer_.data(), buffer_.size(), llm_c_header_bytes + tokens_ * width);
    tokens_ += static_cast<std::int64_t>(count);
    at += count;
    if (tokens_ == shard_tokens_) close(place, at);
  }
}

void TokenWriter::finish(const TextPlace& place) {
  contents_->complete = true;
  tokens_ == 0 ? save(place, 0) : close(place, 0);
}

void TokenWriter::close(const TextPlace& place, std::size_t skip) {
  const LlmC& kind = *std::ranges::find(llm_c_kinds, contents_->token_bytes, &LlmC::token_bytes);
  const std::array words = {kind.magic, kind.version, static_cast<std::int32_t>(tokens_)};
  std::string header(llm_c_header_bytes, '\0');
  std::memcpy(header.data(), words.data(), sizeof words);
  file_->write(header.data(), header.size(), 0);
  file_->finish();
  file_.reset();
  contents_->shards.push_back({.name = name_of_shard(contents_->shards.size()), .tokens = std::exchange(tokens_, 0)});
  save(place, skip);
}

void TokenWriter::save(const TextPlace& place, std::size_t skip) {
  contents_->place = place;
  contents_->skip = static_cast<std::int64_t>(skip);
  write_token_folder(folder_, *contents_);
}

std::optional<std::filesystem::path> megatron_index(const std::filesystem::path& path) {
  std::filesystem::path index = path;
  if (path.extension() == ".bin") index.replace_extension(".idx");
  std::error_code error;
  if (path.extension() != ".bin" && path.extension() != ".idx") {
    // PREFIX, also if a folder of the same name exists, such as the run's --checkpoint-dir; PREFIX/ is the folder.
    if (std::filesystem::exists(path, error) && !std::filesystem::is_directory(path, error)) return std::nullopt;
    index += ".idx";
  }
  const bool exists = std::filesystem::is_regular_file(index, error);
  return exists && OpenFile(index).head().starts_with(index_magic) ? std::optional(index) : std::nullopt;
}

std::filesystem::path megatron_tokens_of(const std::filesystem::path& index) {
  return std::filesystem::path(index).replace_extension(".bin");
}

MegatronTokens read_megatron_index(const std::filesystem::path& path) {
  const OpenFile index(path);
  const std::string name = "data: " + path.string();
  const Header header(index, name);
  const TokenType type = header.type;
  const std::int64_t count = header.sequences;
  const std::filesystem::path tokens = megatron_tokens_of(path);
  const std::int64_t bytes = OpenFile(tokens).bytes();
  std::int64_t end = 0;
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> places;
  for (std::int64_t begin = 0; begin < count; begin += entries_at_a_time) {
    lengths.resize(static_cast<std::size_t>(std::min(entries_at_a_time, count - begin)));
    places.resize(lengths.size());
    index.read(index_header_bytes + 4 * begin, lengths);
    index.read(header.places_at() + 8 * begin, places);
    std::int64_t number = begin;
    for (const auto& [length, place] : ranges::views::zip(lengths, places)) {
      require<InputError>(length >= 0, name, ": sequence ", number, " has the length ", length, "; it is damaged");
      require<InputError>(place == end, name, ": sequence ", number, " begins at byte ", place,
                          ", and the one before ends at ", end,
                          "; sequences must lie one behind another, as Megatron's builder writes them");
      end += std::int64_t{length} * type.bytes;  // no overflow: 2^31 entries of 2^34 bytes fit
      require<InputError>(end <= bytes, name, ": sequence ", number, " ends at byte ", end, ", and ", tokens.string(),
                          " has ", bytes, "; one of the two is cut off or damaged");
      ++number;
    }
  }
  require<InputError>(end == bytes, name, ": its sequences end at byte ", end, ", and ", tokens.string(), " has ",
                      bytes, "; the two do not belong together");
  std::vector<std::int8_t> modes;
  for (std::int64_t begin = 0; header.has_modes && begin < count; begin += entries_at_a_time) {
    modes.resize(static_cast<std::size_t>(std::min(entries_at_a_time, count - begin)));
    index.read(header.documents_at() + 8 * header.documents + begin, modes);
    const auto other = std::ranges::find_if(modes, [](std::int8_t mode) { return mode != 0; });
    require<InputError>(other == modes.end(), name, ": sequence ", begin + (other - modes.begin()), " has the mode ",
                        other == modes.end() ? 0 : int{*other},
                        ", as images of a multimodal set; sequences of mode 0, which is text, can be read");
  }
  return {.token_bytes = type.bytes,
          .is_signed = type.is_signed,
          .tokens = end / type.bytes,
          .documents = std::max<std::int64_t>(header.documents - 1, 0)};
}

std::vector<std::int64_t> read_megatron_documents(const std::filesystem::path& path) {
  const OpenFile index(path);
  const std::string name = "data: " + path.string();
  const Header header(index, name);
  std::vector<std::int64_t> begins;
  std::int64_t before = 0;
  std::vector<std::int64_t> entries(static_cast<std::size_t>(header.documents)), places(1);
  index.read(header.documents_at(), entries);
  for (const auto& [i, entry] : ranges::views::enumerate(entries)) {
    require<InputError>((i > 0 || entry == 0) && entry >= before && entry <= header.sequences, name, ": document ", i,
                        " begins at sequence ", entry, ", behind ", before, " and of ", header.sequences,
                        "; it is damaged");
    before = entry;
    if (before == header.sequences) continue;  // the end, or documents without a sequence
    index.read(header.places_at() + 8 * before, places);
    const std::int64_t begin = places[0] / header.type.bytes;
    if (begins.empty() || begins.back() < begin) begins.push_back(begin);
  }
  return begins;
}

}  // namespace fsdp::data
