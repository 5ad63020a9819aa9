// SPDX-License-Identifier: Apache-2.0
#include <tessera/text/tokenizer.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "../fsdp/core/paths.hpp"
#include "bpe/bpe.hpp"
#include "tokenizer_state.hpp"
#include "unicode/code_points.hpp"

namespace fsdp::text {
namespace {

// Source of the families, the versions, the size and the right expression: _patch_mistral_regex of transformers 5.24.
constexpr std::array<std::string_view, 5> families = {"mistral", "mistral3", "voxtral", "ministral", "pixtral"};
constexpr std::int64_t most_of_other_vocabularies = 100'000;
constexpr std::string_view right_expression =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
    R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view any_letters = R"([^\r\n\p{L}\p{N}]?\p{L}+)";

/// Returns whether the config.json next to a tokenizer belongs to a Mistral model and was written by a version of
/// `transformers` before 5; false if it cannot be read.
bool is_old_mistral(const std::filesystem::path& file) {
  try {
    const std::filesystem::path path = file.parent_path() / "config.json";
    const nlohmann::json config = parse_strict(read_small_file(path, most_config_bytes), path.string());
    const std::string version = value_at<std::string>(config, "transformers_version").value_or("0");
    int major = 0;
    std::from_chars(version.data(), version.data() + version.size(), major);
    return major < 5 &&
           std::ranges::find(families, value_at<std::string>(config, "model_type").value_or("")) != families.end();
  } catch (const InputError&) {
    return false;
  }
}

/// Returns the first expression that a byte-level pre-tokenizer splits text by; empty if there is none.
std::string_view expression_of(const PreTokenizer& pre_tokenizer) {
  if (!pre_tokenizer.byte_level()) return {};
  for (const PreTokenizer::Step& step : pre_tokenizer.steps) {
    if (const auto* const split = std::get_if<Split>(&step)) return split->pattern.text();
    if (const auto* const bytes = std::get_if<ByteLevel>(&step); bytes != nullptr && !bytes->pattern.empty())
      return bytes->pattern.front().text();
  }
  return {};
}

/// Returns a warning if a tokenizer belongs to a Mistral model and splits text by the wrong expression that
/// `transformers` exported before version 5. `file`: its tokenizer.json; the config.json next to it specifies family
/// and version.
std::optional<std::string> mistral_fault(const std::filesystem::path& file, const PreTokenizer& pre_tokenizer,
                                         std::int64_t vocabulary) {
  const std::string_view expression = expression_of(pre_tokenizer);
  const bool joins = expression.find(any_letters) != expression.npos;  // does not split at a change of case
  if (expression.empty() || expression == right_expression) return std::nullopt;
  if ((!joins && vocabulary <= most_of_other_vocabularies) || !is_old_mistral(file)) return std::nullopt;
  return message(file.string(), ": text is split by the expression ", expression, ", which exports of mistral models ",
                 "by transformers before version 5 have in error; the models were trained with ", right_expression,
                 ". Token ids are those of the file; write the second expression into it to have the model's ",
                 "(transformers: fix_mistral_regex=True)");
}

constexpr std::int64_t most_bytes = 256'000'000;
constexpr JsonLimits limits{.depth = 16, .values = 20'000'000, .array = 5'000'000};

/// Returns the truncation and padding that a file requests, such as "truncation to 512 tokens and padding".
/// `transformers` stores these settings in the file after a call that uses them, and resets them at each call that does
/// not.
std::string lengths_requested(const Keys& file) {
  std::string text;
  if (file.has("truncation")) {
    const auto most = value_at<std::int64_t>(file.at("truncation"), "max_length");
    text = most ? message("truncation to ", *most, " tokens") : "truncation";
  }
  if (file.has("padding")) text += text.empty() ? "padding" : " and padding";
  return text;
}

/// Returns the names of ids. Skips unknown ids, and special tokens if `skip_special`.
template <class State>
std::vector<std::string> names_of(const State& state, std::span<const TokenId> ids, bool skip_special) {
  std::vector<std::string> names;
  names.reserve(ids.size());
  for (const TokenId id : ids)
    if (const DecodedToken* const token = state.find(id); token != nullptr && !(skip_special && token->special))
      names.emplace_back(token->name);
  return names;
}

}  // namespace

Tokenizer Tokenizer::read(const std::filesystem::path& path) {
  const std::filesystem::path file = folder_exists(path) ? path / "tokenizer.json" : path;
  Tokenizer tokenizer = parse(read_small_file(file, most_bytes), file.string());
  const State& state = *tokenizer.state_;
  if (auto fault = mistral_fault(file, state.pre_tokenizer, state.vocabulary_size))
    tokenizer.warnings_.push_back(*std::move(fault));
  return tokenizer;
}

Tokenizer Tokenizer::parse(std::string_view json, const std::string& source) {
  const nlohmann::json root = parse_strict(json, source, limits);
  require<InputError>(root.is_object() && Keys(root, source).has("model"), source,
                      ": has no \"model\", so it is not a tokenizer.json");
  const Keys file(root, source);
  Tokenizer tokenizer(std::make_shared<const State>(file));
  if (const std::string lengths = lengths_requested(file); !lengths.empty())
    tokenizer.warnings_.push_back(message(source, ": requests ", lengths, ", which is not applied"));
  return tokenizer;
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool special) const {
  std::vector<TokenId> ids;
  append_encoded(text, special, ids);
  return ids;
}

void Tokenizer::append_encoded(std::string_view text, bool special, std::vector<TokenId>& ids) const {
  const std::size_t begin = ids.size();
  state_->append(text, ids);
  apply(state_->post_processor, special, begin, ids);
}

void Tokenizer::append_following(std::string_view text, std::vector<TokenId>& ids) const {
  state_->append(text, ids, true);
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  std::vector<std::string> names = names_of(*state_, ids, skip_special);
  std::size_t bytes = names.size();
  for (const std::string& name : names) bytes += name.size();
  Budget budget = state_->decoding(bytes);
  return state_->decoder.decode(std::move(names), budget);
}

TextFrame Tokenizer::frame() const {
  constexpr TokenId text = 0xFFFFFFFF;  // above largest_id
  std::vector<TokenId> ids = {text};
  apply(state_->post_processor, true, 0, ids);
  require<InputError>(std::count(ids.begin(), ids.end(), text) == 1,
                      "the tokenizer's post-processor must hold the text once, to be put around parts of documents");
  const auto place = std::find(ids.begin(), ids.end(), text);
  return {.before = {ids.begin(), place}, .after = {place + 1, ids.end()}};
}

std::int64_t Tokenizer::vocabulary_size() const { return state_->vocabulary_size; }

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  const auto added = state_->added_ids.find(token);
  return added != state_->added_ids.end() ? std::optional(added->second) : state_->model.vocabulary().find(token);
}

std::optional<std::string> Tokenizer::name_of(TokenId id) const {
  for (const AddedToken& token : state_->added)
    if (token.id == id) return token.content;
  const DecodedToken* const token = state_->find(id);
  return token == nullptr ? std::nullopt : std::optional<std::string>(token->name);
}

bool Tokenizer::is_special(TokenId id) const {
  const DecodedToken* const token = state_->find(id);
  return token != nullptr && token->special;
}

std::vector<TokenId> Tokenizer::ids_without_token(std::int64_t vocabulary) const {
  std::vector<TokenId> ids;
  for (std::int64_t id = 0; id < vocabulary; ++id)
    if (state_->find(static_cast<TokenId>(id)) == nullptr) ids.push_back(static_cast<TokenId>(id));
  return ids;
}

StreamDecoder::StreamDecoder(Tokenizer tokenizer, bool skip_special)
    : tokenizer_(std::move(tokenizer)), skip_special_(skip_special) {}

std::string StreamDecoder::push(TokenId id) {
  std::string out;
  if (tokenizer_.state_->decoder.byte_level) {
    for (const std::string& name : names_of(*tokenizer_.state_, std::span(&id, 1), skip_special_))
      if (!append_bytes(bytes_, name)) bytes_ += name;
    std::string_view rest = bytes_;
    while (!rest.empty()) {
      const Utf8Step step = utf8_step(rest);
      if (step.cut) break;
      out += step.valid ? rest.substr(0, step.length) : replacement;
      rest.remove_prefix(step.length);
    }
    bytes_ = std::string(rest);
    return out;
  }
  // A token's text may depend on the tokens before it: decodes the token together with the last tokens returned, then
  // removes their text.
  constexpr std::size_t most_waiting = 64;  // tokens withheld while the text ends in U+FFFD; a character needs up to 4
  ids_.push_back(id);
  const std::string text = tokenizer_.decode(ids_, skip_special_);
  if (text.size() <= given_text_.size()) return out;
  if (text.ends_with(replacement) && ids_.size() - given_ < most_waiting) return out;
  out = text.starts_with(given_text_) ? text.substr(given_text_.size())
                                      : tokenizer_.decode(std::span(ids_).subspan(given_), skip_special_);
  ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = ids_.size();
  given_text_ = tokenizer_.decode(ids_, skip_special_);
  return out;
}

std::string StreamDecoder::finish() {
  std::string out;
  append_replacing(out, bytes_);
  const std::string text = tokenizer_.decode(ids_, skip_special_);
  if (text.size() > given_text_.size() && text.starts_with(given_text_)) out += text.substr(given_text_.size());
  *this = StreamDecoder(std::move(tokenizer_), skip_special_);
  return out;
}

}  // namespace fsdp::text
