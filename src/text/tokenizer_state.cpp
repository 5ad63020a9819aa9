// SPDX-License-Identifier: Apache-2.0
#include "tokenizer_state.hpp"

#include <algorithm>
#include <set>
#include <unordered_set>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "unicode/code_points.hpp"
#include "unicode/unicode_sets.hpp"

namespace fsdp::text {
namespace {

bool is_word(char32_t code) {
  static const CodePointSet& word = unicode_set("added_word");
  return word.contains(code);
}

bool is_space(char32_t code) {
  static const CodePointSet& space = unicode_set("space");
  return space.contains(code);
}

bool stands_alone(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0 && is_word(code_point_before(text, begin))) return false;
  return end == text.size() || !is_word(next_code_point(text, end));
}

}  // namespace

std::uint32_t AddedTokenFinder::child_of(std::uint32_t node, unsigned char byte) const {
  for (const auto& [edge, child] : nodes_[node].next)
    if (edge == byte) return child;
  return 0;
}

void AddedTokenFinder::add(const AddedToken* token) {
  std::uint32_t node = 0;
  for (const char c : token->pattern) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t child = child_of(node, byte);
    if (child == 0) {
      child = static_cast<std::uint32_t>(nodes_.size());
      nodes_[node].next.emplace_back(byte, child);
      if (node == 0) first_[byte] = child;
      nodes_.emplace_back();
    }
    node = child;
  }
  nodes_[node].token = token;
}

const AddedToken* AddedTokenFinder::longest(std::string_view text, std::size_t at, Budget& budget) const {
  const std::size_t begin = at;
  const AddedToken* best = nullptr;
  for (std::uint32_t node = first_[static_cast<unsigned char>(text[at])]; node != 0;) {
    if (nodes_[node].token != nullptr) best = nodes_[node].token;
    if (++at == text.size()) break;
    node = child_of(node, static_cast<unsigned char>(text[at]));
  }
  budget.spend(at - begin);
  return best;
}

void AddedTokenFinder::split(std::string_view text, std::vector<TextPart>& parts, Budget& budget) const {
  std::size_t done = 0;
  std::size_t spaces_end = 0;  // end of the white space that the last token stripped on its right
  const auto add = [&](std::size_t begin, std::size_t end, const AddedToken* token) {
    if (begin < end) parts.push_back({begin, end, token});
  };
  for (std::size_t at = 0; at < text.size() && !empty();) {
    const bool begins = first_[static_cast<unsigned char>(text[at])] != 0;
    const AddedToken* const token = begins ? longest(text, at, budget) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at, end = at + token->pattern.size();
    at = end;
    if (token->single_word && !stands_alone(text, begin, end)) continue;
    if (token->lstrip) {
      while (begin > done && is_space(code_point_before(text, begin))) begin = previous_code_point(text, begin);
      begin = std::max(begin, done);  // the previous token may have stripped a part of this white space
    }
    if (token->rstrip) {
      end = std::max(end, spaces_end);  // do not scan white space again that is already scanned
      for (std::size_t behind = end; end < text.size() && is_space(next_code_point(text, behind));) end = behind;
      spaces_end = end;
    }
    add(done, begin, nullptr);
    add(begin, end, token);
    done = end;  // moves back if the previous token stripped white space beyond this token, as in `tokenizers`
  }
  add(done, text.size(), nullptr);
}

std::vector<AddedToken> read_added_tokens(const Keys& file) {
  std::vector<AddedToken> tokens;
  if (!file.has("added_tokens")) return tokens;
  for (const nlohmann::json& entry : file.array("added_tokens")) {
    const Keys keys(entry, file.source(), "added token " + std::to_string(tokens.size()));
    tokens.push_back({.id = static_cast<TokenId>(keys.integer_up_to("id", largest_id)),
                      .content = keys.text("content"),
                      .pattern = {},
                      .single_word = keys.boolean("single_word"),
                      .lstrip = keys.boolean("lstrip"),
                      .rstrip = keys.boolean("rstrip"),
                      .normalized = keys.boolean("normalized"),
                      .special = keys.boolean("special")});
    if (tokens.back().content.empty()) keys.refuse("has no content");
  }
  return tokens;
}

namespace {

/// Reads a stage of the file; an absent or null stage has no steps.
template <class Part>
Part read_part(const Keys& file, const char* key, const char* name, Part (*read)(const Keys&)) {
  return file.has(key) ? read(Keys(file.at(key), file.source(), name)) : Part();
}

/// Throws InputError for a Metaspace with the scheme "first" together with a normalizer that can replace one character
/// by several. "first" depends on whether a word begins at the original text's first character, which would be
/// ambiguous.
void check_first(const Normalizer& normalizer, const PreTokenizer& pre_tokenizer, const std::string& source) {
  for (const PreTokenizer::Step& step : pre_tokenizer.steps) {
    const auto* const metaspace = std::get_if<Metaspace>(&step);
    if (metaspace == nullptr || metaspace->prepend != Metaspace::Prepend::first) continue;
    for (const Normalizer::Step& other : normalizer.steps) {
      const auto* const replace = std::get_if<Replace>(&other);
      const bool one = replace != nullptr &&
                       (replace->content.empty() ||
                        utf8_length(static_cast<unsigned char>(replace->content[0])) == replace->content.size());
      require<InputError>(
          one, source, ": the pre-tokenizer \"Metaspace\" prepends first, which is supported beside no ",
          "normalizer, or beside Replace by at most one character; set prepend_scheme to always or never");
    }
  }
}

}  // namespace

Tokenizer::State::State(const Keys& file)
    : normalizer(read_part(file, "normalizer", "normalizer", read_normalizer)),
      pre_tokenizer([&] {
        PreTokenizer read = read_part(file, "pre_tokenizer", "pre-tokenizer", read_pre_tokenizer);
        check_first(normalizer, read, file.source());
        return read;
      }()),
      post_processor(read_part(file, "post_processor", "post-processor", read_post_processor)),
      decoder(read_part(file, "decoder", "decoder", read_decoder)),
      model(Keys(file.at("model"), file.source(), "model"), pre_tokenizer.byte_level()),
      added(read_added_tokens(file)),
      encoding_{file.source() + ": encoding a text",
                "its expressions, normalizers or added tokens go over the text too often to be used on it"},
      decoding_{file.source() + ": decoding tokens", "its decoders go over the text too often to be used on it"} {
  const TokenMap& vocabulary = model.vocabulary();
  tokens.reserve(vocabulary.size() + added.size());
  for (std::size_t i = 0; i < vocabulary.size(); ++i)
    tokens.push_back({.id = vocabulary.id(i), .name = vocabulary.name(i)});
  add_tokens(file.source());
}

void Tokenizer::State::add_tokens(const std::string& source) {
  // Tokens that the model lacks get the next ids in order; like the package, this ignores the ids in the file.
  auto next = static_cast<std::int64_t>(model.vocabulary().size());
  std::set<std::pair<bool, std::string_view>> patterns;
  std::unordered_set<std::string_view> special;
  std::vector<DecodedToken> others;
  std::size_t bytes = 0;
  for (const AddedToken& token : added) bytes += token.content.size();
  Budget budget = encoding(bytes);
  for (AddedToken& token : added) {
    const std::optional<TokenId> known = model.vocabulary().find(token.content);
    const std::int64_t id = known ? std::int64_t{*known} : next++;
    require<InputError>(id == token.id, source, ": the added token \"", shortened(token.content), "\" has the id ",
                        token.id, ", but it is token ", id, known ? " of the model" : " by its place in the list",
                        "; write added tokens in the order of their ids, without gaps");
    require<InputError>(added_ids.emplace(token.content, token.id).second, source, ": the added token \"",
                        shortened(token.content), "\" stands twice");
    std::string buffer;
    token.pattern = token.normalized ? normalizer.apply({.text = token.content}, buffer, budget).text : token.content;
    require<InputError>(!token.pattern.empty() && patterns.emplace(token.normalized, token.pattern).second, source,
                        ": the added token \"", shortened(token.content), "\" is normalized to \"",
                        shortened(token.pattern),
                        "\", which is empty or another one's text; set its normalized to false");
    (token.normalized ? in_normalized : in_text).add(&token);
    if (token.special) special.insert(token.content);
    if (known)
      std::ranges::lower_bound(tokens, token.id, {}, &DecodedToken::id)->name = token.pattern;
    else
      others.push_back({.id = token.id, .name = token.pattern});
  }
  tokens.insert(tokens.end(), others.begin(), others.end());
  std::ranges::sort(tokens, {}, &DecodedToken::id);
  for (std::size_t i = 1; i < tokens.size(); ++i)
    require<InputError>(tokens[i].id != tokens[i - 1].id, source, ": the added token \"", shortened(tokens[i].name),
                        "\" has the id ", tokens[i].id, ", which a token of the model has; write ids without gaps");
  if (!tokens.empty()) vocabulary_size = std::int64_t{tokens.back().id} + 1;
  for (DecodedToken& token : tokens) token.special = special.contains(token.name);  // by name, as in the package
}

const DecodedToken* Tokenizer::State::find(TokenId id) const {
  if (id < tokens.size() && tokens[id].id == id) return &tokens[id];  // fast path: no gaps in the ids before it
  const auto found = std::ranges::lower_bound(tokens, id, {}, &DecodedToken::id);
  return found == tokens.end() || found->id != id ? nullptr : &*found;
}

void Tokenizer::State::append(std::string_view text, std::vector<TokenId>& ids, bool follows) const {
  std::unique_ptr<Scratch> taken = pool.take();
  Scratch& scratch = *taken;
  if (valid_length(text) != text.size()) {
    scratch.valid.clear();
    append_replacing(scratch.valid, text);
    text = scratch.valid;
  }
  Budget budget = encoding(text.size());
  scratch.parts.clear();
  in_text.split(text, scratch.parts, budget);
  for (const TextPart& part : scratch.parts) {
    if (part.token != nullptr) {
      ids.push_back(part.token->id);
      continue;
    }
    const Part normalized = normalizer.apply({.text = text.substr(part.begin, part.end - part.begin),
                                              .at_begin = part.begin == 0 && !follows,
                                              .follows = part.begin == 0 && follows},
                                             scratch.normalized, budget);
    scratch.inner_parts.clear();
    in_normalized.split(normalized.text, scratch.inner_parts, budget);
    for (const TextPart& inner : scratch.inner_parts) {
      if (inner.token != nullptr)
        ids.push_back(inner.token->id);
      else
        append_part({.text = normalized.text.substr(inner.begin, inner.end - inner.begin),
                     .at_begin = normalized.at_begin && inner.begin == 0,
                     .follows = normalized.follows && inner.begin == 0},
                    scratch, ids, budget);
    }
  }
  pool.give_back(std::move(taken));
}

void Tokenizer::State::append_part(const Part& part, Scratch& scratch, std::vector<TokenId>& ids,
                                   Budget& budget) const {
  Words& words = scratch.words;
  pre_tokenizer.split(part, words, budget);
  for (const Match& span : words.spans) {
    const std::string_view text = words.text.substr(span.begin, span.end - span.begin);
    std::size_t begin = 0;
    if (model.cuts_at_spaces())
      for (std::size_t at = next_space_mark(text, 1); at != text.npos; at = next_space_mark(text, at + 1)) {
        append_word(text.substr(begin, at - begin), scratch, ids);
        begin = at;
      }
    append_word(text.substr(begin), scratch, ids);
  }
}

void Tokenizer::State::append_word(std::string_view word, Scratch& scratch, std::vector<TokenId>& ids) const {
  const bool cached = word.size() <= WordCache::longest_word;
  if (cached && scratch.cache.append(word, ids)) return;
  const std::size_t begin = ids.size();
  model.append(word, scratch.bpe, ids);
  if (cached) scratch.cache.keep(word, std::span(ids).subspan(begin));
}

}  // namespace fsdp::text
