// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/conversations.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/trainer/report/report.hpp>

#include "../../fsdp/checkpoint/posix.hpp"
#include "../../fsdp/core/json/strict_json.hpp"
#include "files/encodings.hpp"
#include "files/text_files.hpp"

namespace fsdp::data {
namespace {

// The file: tokens as int32, the index as int64, a JSON object, and a tail of fixed size with the lengths of these two.
constexpr std::string_view magic = "tessera chat 1\n\n";

struct Tail {
  std::int64_t conversations = 0, json_bytes = 0;
  std::array<char, 16> magic{};
};

// For caches: increase it when the same records give other tokens or notes.
constexpr std::int64_t encoding_version = 2;

/// Properties of the records that the log reports.
struct Findings {
  std::int64_t missing = 0, reasoning = 0, empty = 0;  // numbers of conversations; answers; answers
  std::string first_missing = {}, first_empty = {};
  std::map<std::string, std::int64_t> unread = {};  // number of records by key
  static constexpr std::size_t most_keys = 1000;

  void add(const text::ChatTokens& chat, const std::string& place) {
    if (!chat.missing.empty() && missing++ == 0) first_missing = place + ": " + chat.missing;
    reasoning += chat.reasoning;
    if (chat.empty > 0 && empty == 0) first_empty = place;
    empty += chat.empty;
    for (const std::string& key : chat.unread) count(key, 1);
  }

  void add(const Findings& later) {
    if (missing == 0) first_missing = later.first_missing;
    if (empty == 0) first_empty = later.first_empty;
    missing += later.missing;
    reasoning += later.reasoning;
    empty += later.empty;
    for (const auto& [key, records] : later.unread) count(key, records);
  }

  std::vector<std::string> sentences(std::int64_t conversations, const std::string& format) const {
    using report::count_text;
    const auto answers = [](std::int64_t count) { return count_text(count) + (count == 1 ? " answer" : " answers"); };
    std::vector<std::string> all;
    if (missing > 0)
      all.push_back(message("warning: a part is absent from the text of ", count_text(missing), " of ",
                            count_text(conversations), " conversations; the first: ", first_missing));
    if (reasoning > 0) all.push_back(message(format, " does not write the reasoning of ", answers(reasoning)));
    if (empty > 0)
      all.push_back(message("warning: ", answers(empty), empty == 1 ? " that is learned is" : " that are learned are",
                            " empty; the first: ", first_empty));
    if (unread.empty()) return all;
    constexpr std::size_t most_named = 12;
    std::string keys;
    for (std::size_t named = 0; const auto& [key, records] : unread) {
      if (++named > most_named) break;
      keys += message(keys.empty() ? "" : ", ", shortened(key, 60), " in ", count_text(records),
                      records == 1 ? " record" : " records");
    }
    if (unread.size() > most_named) keys += message(" and ", unread.size() - most_named, " other keys");
    all.push_back("not read: " + keys);
    return all;
  }

 private:
  void count(const std::string& key, std::int64_t records) {
    if (unread.size() < most_keys || unread.contains(key)) unread[key] += records;
  }
};

struct EncodedUnit {
  std::vector<std::int32_t> tokens;
  std::vector<Conversations::Entry> index;  // ends are relative to the unit
  Findings findings;
  std::vector<std::int64_t> replaced;  // for each piece: number of bytes that are not Unicode text
};

/// Returns the description of a place in a file, without its number: "chats.jsonl line".
std::string place_in(const TextFile& file) { return message(file.path.string(), " ", place_name(file.form)); }

/// Returns whether the value of a record's key becomes part of its text.
bool is_read(std::string_view key) {
  constexpr std::array keys = {"messages",      "prompt",         "completion", "system",
                               "system_prompt", "system_message", "tools",      "chat_template_kwargs"};
  return std::ranges::find(keys, key) != keys.end();
}

EncodedUnit encoded(const text::ChatFormat& format, const TextUnit& unit, const std::vector<TextFile>& files) {
  EncodedUnit out;
  for (const TextPiece& piece : unit.pieces) {
    std::int64_t& replaced = out.replaced.emplace_back(0);
    std::string_view line = unit.text(piece);
    if (line.find_first_not_of(" \t\r\n") == line.npos) continue;
    const std::string place = message(place_in(files[static_cast<std::size_t>(piece.file)]), " ", piece.line);
    const auto mended = unicode_record(line, is_read);
    if (mended) line = mended->json;
    if (mended) replaced = mended->replaced;
    const text::ChatTokens chat = format.encode(line, place);
    out.findings.add(chat, place);
    for (const auto& [id, answers] : ranges::views::zip(chat.ids, chat.answers)) {
      const auto token = static_cast<std::int32_t>(id);
      out.tokens.push_back(answers ? token : ~token);
    }
    out.index.push_back({.end = std::ssize(out.tokens), .file = piece.file, .line = piece.line});
  }
  return out;
}

InputError damaged(const std::filesystem::path& path) {
  return InputError(message("data: ", path.string(), " is not what was written; delete it"));
}

}  // namespace

ConversationTexts::ConversationTexts(std::span<const std::filesystem::path> paths,
                                     const std::filesystem::path& tokenizer, const std::string& chat_template,
                                     const std::string& end_token, text::Learn learn)
    : tokenizer_(tokenizer), format_(tokenizer, chat_template, text::training_clock(), end_token, learn) {
  InputFiles inputs = input_files(paths);
  left_out_ = std::move(inputs.left_out);
  for (InputFile& file : inputs.files) {
    const TextCandidate candidate(file.path);
    require<InputError>(candidate.reading != Reading::another, "--data ", file.path.string(), " is ",
                        candidate.kind.name, ", and --data-format chat reads conversations as JSON; ",
                        candidate.kind.advice);
    require<InputError>(is_named_json(file.path), "--data ", file.path.string(),
                        " is no JSONL (.jsonl or .ndjson) and no array of records (.json), and --data-format chat ",
                        "reads conversations, one a record");
    if (candidate.reading != Reading::text) refuse_nul(file.path);
    files_.push_back(std::move(file.path));
  }
  require<InputError>(!files_.empty(), "--data: there is no file of conversations",
                      left_out_.empty() ? "" : " (" + left_out_.text() + ")");
}

std::string ConversationTexts::made_of() const {
  std::uint64_t hash = hashed(hash_seed, static_cast<std::int64_t>(digest_of_file(tokenizer_)));
  hash = hashed(hashed(hash, static_cast<std::int64_t>(format_.digest())), reading_version);
  hash = hashed(hash, encoding_version);
  for (const std::filesystem::path& file : files_) hash = hashed_state(hash, file);
  return digest_text(hash);
}

void ConversationTexts::write(const std::filesystem::path& path, const ReportBytes& report) const {
  std::vector<TextFile> texts;
  std::int64_t all_bytes = 0, bytes = 0;
  for (const std::filesystem::path& file : files_) {
    const TextCandidate candidate(file);
    require_records(candidate.form, file);
    require<InputError>(candidate.form != TextForm::text || candidate.bytes == 0, "--data ", file.string(),
                        " holds no records: it begins with neither { nor [");
    if (candidate.bytes > 0) texts.push_back({.path = file, .bytes = candidate.bytes, .form = candidate.form});
    all_bytes += candidate.bytes;
  }
  checkpoint::PartFile out(message(path.string(), ".", ::getpid(), ".part"), path);
  auto append = [&out, at = std::int64_t{0}](const void* data, std::size_t bytes) mutable {
    out.write(data, bytes, at);
    at += static_cast<std::int64_t>(bytes);
  };
  std::vector<Conversations::Entry> index;
  std::uint64_t digest = hash_seed;
  Findings findings;
  std::vector<std::int64_t> replaced(texts.size());  // for each file: number of replaced bytes
  TextUnits units(format_.tokenizer(), texts);
  encode_units(
      units, static_cast<int>(device::available_cores()), 2,
      [&](const TextUnit& unit) { return encoded(format_, unit, texts); },
      [&](const TextUnit& unit, const EncodedUnit& made) {
        for (const auto& [piece, of_piece] : ranges::views::zip(unit.pieces, made.replaced)) {
          const auto file = static_cast<std::size_t>(piece.file);
          replaced[file] += of_piece;
          require_unicode(texts[file].path, replaced[file], texts[file].bytes, piece.line);
        }
        append(made.tokens.data(), made.tokens.size() * sizeof(std::int32_t));
        for (const std::int32_t token : made.tokens) digest = mixed(digest ^ static_cast<std::uint32_t>(token));
        findings.add(made.findings);
        const std::int64_t end = index.empty() ? 0 : index.back().end;
        for (Conversations::Entry entry : made.index) {
          entry.end += end;
          index.push_back(entry);
        }
        bytes += std::ssize(unit.bytes);
      },
      [&] {
        if (report) report(bytes, all_bytes);
      });
  require<InputError>(!index.empty(), "--data ", files_.front().string(), files_.size() > 1 ? " and the others" : "",
                      ": there is no conversation");
  std::vector<std::vector<std::uint8_t>> sources;  // as bytes, since JSON requires UTF-8
  for (const TextFile& file : texts) {
    const std::string place = place_in(file);
    sources.emplace_back(place.begin(), place.end());
  }
  const std::string text =
      object_text({{"digest", digest_text(digest)},
                   {"notes", findings.sentences(std::ssize(index), format_.name())},
                   {"replaced", std::accumulate(replaced.begin(), replaced.end(), std::int64_t{0})},
                   {"sources", sources}});
  Tail tail{.conversations = std::ssize(index), .json_bytes = std::ssize(text)};
  magic.copy(tail.magic.data(), tail.magic.size());
  append(index.data(), index.size() * sizeof(Conversations::Entry));
  append(text.data(), text.size());
  append(&tail, sizeof tail);
  out.finish();
}

Conversations::Conversations(const std::filesystem::path& path)
    : path_(path), file_(open_file(path, O_RDONLY, "read")) {
  const std::int64_t bytes = size_of(file_, path);
  constexpr std::int64_t tail_bytes = sizeof(Tail), entry_bytes = sizeof(Entry), token_bytes = sizeof(std::int32_t);
  Tail tail;
  if (bytes < tail_bytes) throw damaged(path);
  read_all(file_, path, &tail, sizeof tail, bytes - tail_bytes);
  const std::int64_t rest = bytes - tail_bytes;
  const bool fits = std::string_view(tail.magic.data(), tail.magic.size()) == magic && tail.json_bytes >= 0 &&
                    tail.json_bytes <= rest && tail.conversations >= 1 &&
                    tail.conversations <= (rest - tail.json_bytes) / entry_bytes;
  if (!fits) throw damaged(path);
  std::string text(static_cast<std::size_t>(tail.json_bytes), ' ');
  read_all(file_, path, text.data(), text.size(), rest - tail.json_bytes);
  index_.resize(static_cast<std::size_t>(tail.conversations));
  const std::int64_t index_at = rest - tail.json_bytes - tail.conversations * entry_bytes;
  read_all(file_, path, index_.data(), index_.size() * sizeof(Entry), index_at);
  try {
    const nlohmann::json json = json_value(text);
    digest_ = json.at("digest").get<std::string>();
    replaced_ = json.value("replaced", std::int64_t{0});  // older files do not contain the count
    for (const std::vector<std::uint8_t> name : json.at("sources")) sources_.emplace_back(name.begin(), name.end());
    notes_ = json.at("notes").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    throw damaged(path);
  }
  std::int64_t before = 0;
  for (const Entry& each : index_) {
    if (each.end <= before || each.file < 0 || each.file >= std::ssize(sources_)) throw damaged(path);
    before = each.end;
  }
  if (before * token_bytes != index_at) throw damaged(path);
}

std::string Conversations::place_of(std::int64_t i) const {
  return message(sources_[static_cast<std::size_t>(entry(i).file)], " ", entry(i).line);
}

void Conversations::append(std::int64_t i, std::vector<std::int32_t>& tokens) const {
  const std::size_t before = tokens.size();
  tokens.resize(before + static_cast<std::size_t>(length(i)));
  read_all(file_, path_, tokens.data() + before, static_cast<std::size_t>(length(i)) * sizeof(std::int32_t),
           begin(i) * std::int64_t{sizeof(std::int32_t)});
}

}  // namespace fsdp::data
