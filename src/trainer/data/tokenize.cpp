// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/tokenize.hpp>

#include <algorithm>
#include <span>
#include <utility>

#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/checkpoint/directory_lock.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/text/tokenizer_config.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "files/encodings.hpp"
#include "files/text_files.hpp"
#include "formats/token_files.hpp"

namespace fsdp::data {
namespace {

constexpr JsonLimits line_limits{.depth = 64, .values = 10'000'000, .array = 10'000'000, .text = 1'000'000'000};

/// The tokens of a unit.
struct UnitIds {
  std::vector<text::TokenId> ids;
  std::vector<std::int64_t> replaced;  // for each piece: number of bytes that are not Unicode text
  std::int64_t documents = 0;
};

}  // namespace

struct Tokenizing::State {
  explicit State(const TokenizeRequest& asked)
      : request(asked),
        file(text::tokenizer_at(asked.tokenizer)),
        tokenizer(text::Tokenizer::read(file)),
        frame(tokenizer.frame()),
        end(text::end_token_of(tokenizer, file, text::special_tokens_beside(file), asked.end_token)),
        texts(text_files(request.inputs)) {
    require<InputError>(request.shard_tokens >= 1 && request.shard_tokens <= llm_c_most_tokens, "a file of ",
                        request.shard_tokens, " tokens; llm.c's hold 1 to ", llm_c_most_tokens);
    require<InputError>(!texts.files.empty(), no_text(request.inputs, texts.left_out));
    std::uint64_t hash = hashed(hash_seed, static_cast<std::int64_t>(digest_of_file(file)));
    hash = hashed(hashed(hash, request.field), end ? std::int64_t{*end} : std::int64_t{-1});
    hash = hashed(hashed(hash, request.shard_tokens), reading_version);
    for (const TextFile& each : texts.files) hash = hashed_state(hash, each.path);
    made_of = digest_text(hash);
  }

  /// Returns the text of a record, and adds the number of its bytes that became U+FFFD.
  std::string text_of_line(const TextUnit& unit, const TextPiece& piece, std::int64_t& replaced) const {
    std::string_view line = unit.text(piece);
    if (line.find_first_not_of(" \t\r") == line.npos) return {};  // an empty line
    const TextFile& from = texts.files[static_cast<std::size_t>(piece.file)];
    const std::string source = message("data: ", from.path.string(), " ", place_name(from.form), " ", piece.line);
    const auto mended = unicode_record(line, [&](std::string_view key) { return key == request.field; });
    if (mended) line = mended->json;
    if (mended) replaced += mended->replaced;
    nlohmann::json value = parse_strict(line, source, line_limits);
    const auto found = value.is_object() ? value.find(request.field) : value.end();
    require<InputError>(value.is_object(), source, ": is not a JSON object");
    require<InputError>(found != value.end(), source, ": has no \"", shortened(request.field),
                        "\"; name the field of the text by --text-field",
                        value.contains("messages") || value.contains("prompt") || value.contains("conversations")
                            ? ", or train on conversations by --data-format chat"
                            : "");
    require<InputError>(!found->is_null(), source, ": \"", shortened(request.field),
                        "\" is null; give it a text, or leave the record out");
    require<InputError>(found->is_string(), source, ": \"", shortened(request.field),
                        "\" is not a text; name the field of the text by --text-field");
    return std::move(found->get_ref<std::string&>());
  }

  void append_piece(const TextUnit& unit, const TextPiece& piece, UnitIds& out) const {
    const bool record = texts.files[static_cast<std::size_t>(piece.file)].form != TextForm::text;
    std::int64_t replaced = 0;
    const std::string of_record = record ? text_of_line(unit, piece, replaced) : std::string();
    std::string_view text = record ? std::string_view(of_record) : unit.text(piece);
    if (!record && piece.opens && text.starts_with(utf8_mark)) text.remove_prefix(utf8_mark.size());
    out.replaced.push_back(record ? replaced : invalid_bytes(text));
    if (text.empty()) return;
    if (piece.opens) out.ids.insert(out.ids.end(), frame.before.begin(), frame.before.end());
    piece.opens ? tokenizer.append_encoded(text, false, out.ids) : tokenizer.append_following(text, out.ids);
    if (!piece.closes) return;
    out.ids.insert(out.ids.end(), frame.after.begin(), frame.after.end());
    if (end && (out.ids.empty() || out.ids.back() != *end)) out.ids.push_back(*end);
    ++out.documents;
  }

  TokenizeRequest request;
  std::filesystem::path file;
  text::Tokenizer tokenizer;
  text::TextFrame frame;
  std::optional<text::TokenId> end;
  TextFiles texts;
  std::string made_of;
};

Tokenizing::Tokenizing(const TokenizeRequest& request) : state_(std::make_shared<const State>(request)) {}
const text::Tokenizer& Tokenizing::tokenizer() const { return state_->tokenizer; }
std::optional<text::TokenId> Tokenizing::end_token() const { return state_->end; }
const std::vector<std::string>& Tokenizing::warnings() const { return state_->texts.warnings; }
const std::string& Tokenizing::made_of() const { return state_->made_of; }

namespace {

TokenFolder same_texts(const Tokenizing::State& state, const std::filesystem::path& folder, TokenFolder contents) {
  require<InputError>(contents.made_of == state.made_of, folder.string(), " holds the tokens of other texts, of ",
                      "another tokenizer, or made with other flags; take another folder, or delete it");
  return contents;
}

/// Returns the contents of an incomplete or a new folder. Throws InputError for a folder with other texts.
TokenFolder opened_token_folder(const Tokenizing::State& state, const std::filesystem::path& folder) {
  if (std::optional<TokenFolder> before = read_token_folder(folder))
    return same_texts(state, folder, std::move(*before));
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::filesystem::path name = entry.path().filename();
    require<InputError>(name == checkpoint::lock_name || name.extension() == ".part", folder.string(),
                        " is not empty and holds no tokens.json; take a new folder");
  }
  return {.made_of = state.made_of,
          .token_bytes = state.tokenizer.vocabulary_size() <= 65536 ? 2 : 4,
          .skipped = state.texts.left_out.binary()};
}

/// Returns the progress that a folder's contents represent.
TokenizeProgress progress_of(const Tokenizing::State& state, const TokenFolder& contents) {
  const std::span files(state.texts.files);
  std::int64_t bytes = contents.place.byte;
  for (const TextFile& file : files.first(std::min(files.size(), static_cast<std::size_t>(contents.place.file))))
    bytes += file.bytes;
  return {.bytes = bytes,
          .all_bytes = state.texts.all_bytes,
          .documents = contents.documents,
          .tokens = contents.tokens() - contents.skip};
}

Tokenized result_of(const Tokenizing::State& state, const TokenFolder& contents, Tokenized how) {
  how.total = progress_of(state, contents);
  how.files = std::ssize(contents.shards);
  how.left_out = state.texts.left_out;
  how.replaced_bytes = contents.replaced;
  return how;
}

/// Adds the bytes of a unit that are not Unicode text to two counts. Throws InputError if a file has too many.
void add_replaced(const std::vector<TextFile>& files, const TextUnit& unit, const std::vector<std::int64_t>& of_pieces,
                  std::int64_t& all, std::int64_t& in_file) {
  for (const auto& [piece, bytes] : ranges::views::zip(unit.pieces, of_pieces)) {
    const TextFile& file = files[static_cast<std::size_t>(piece.file)];
    const bool record = file.form != TextForm::text;
    if (record ? piece.line == 1 : piece.opens) in_file = 0;
    in_file += bytes;
    all += bytes;
    if (record) require_unicode(file.path, in_file, file.bytes, piece.line);
    if (!record && bytes > 0) require_utf8(file.path, in_file, file.bytes);
  }
}

}  // namespace

Tokenized Tokenizing::write(const std::filesystem::path& folder,
                            const std::function<void(const TokenizeProgress&)>& report) {
  const State& state = *state_;
  if (std::optional<TokenFolder> before = read_token_folder(folder); before && before->complete)
    // Needs no lock, since nothing is written
    return result_of(state, same_texts(state, folder, std::move(*before)), {.already_complete = true});
  const checkpoint::DirectoryLock lock(folder);
  TokenFolder contents = opened_token_folder(state, folder);
  TokenizeProgress progress = progress_of(state, contents);
  const Tokenized how{.resumed_at_bytes = progress.bytes};
  TokenWriter writer(folder, contents, state.request.shard_tokens);
  TextUnits units(state.tokenizer, state.texts.files, contents.place);
  encode_units(
      units, static_cast<int>(state.request.threads > 0 ? state.request.threads : device::available_cores()), 4,
      [&](const TextUnit& unit) {
        UnitIds out;
        for (const TextPiece& piece : unit.pieces) state.append_piece(unit, piece, out);
        return out;
      },
      [&](const TextUnit& unit, const UnitIds& out) {
        std::int64_t replaced = contents.replaced, in_file = contents.replaced_in_file;
        // Checked before any part of the unit is written
        add_replaced(state.texts.files, unit, out.replaced, replaced, in_file);
        writer.append(out.ids, unit.begin);
        contents.documents += out.documents;
        contents.replaced = replaced;
        contents.replaced_in_file = in_file;
        progress.bytes += std::ssize(unit.bytes);
        progress.documents += out.documents;
        progress.tokens += std::ssize(out.ids);
      },
      [&] {
        if (report) report(progress);
      });
  writer.finish({.file = std::ssize(state.texts.files)});
  require<InputError>(contents.tokens() > 0, folder.string(), ": the texts hold no token");
  return result_of(state, contents, how);
}

}  // namespace fsdp::data
