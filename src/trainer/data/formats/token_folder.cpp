// SPDX-License-Identifier: Apache-2.0
#include "token_folder.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

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
  nlohmann::ordered_json root = {{"format", "tessera tokens 1"},
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
                                 {"shards", nlohmann::ordered_json::array()}};
  for (const TokenShard& shard : contents.shards) root["shards"].push_back(shard.tokens);
  const std::string text = root.dump() + "\n";
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

}  // namespace fsdp::data
