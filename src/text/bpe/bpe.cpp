// SPDX-License-Identifier: Apache-2.0
#include "bpe.hpp"

#include <algorithm>
#include <iterator>

#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/strings.hpp"
#include "../stages/stages.hpp"
#include "../unicode/code_points.hpp"

namespace fsdp::text {
namespace {

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x200> bytes{};  // the byte for each code point; -1 if there is none

  Alphabet() {
    bytes.fill(-1);
    char32_t moved = 0x100;  // invisible bytes get the characters after Latin-1, in order
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t code = visible ? byte : moved++;
      append_utf8(characters[byte], code);
      bytes[code] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet the_alphabet;
  return the_alphabet;
}

/// Returns the character for a byte, as UTF-8.
const std::string& character_of_byte(unsigned char byte) { return alphabet().characters[byte]; }

/// Returns the token "<0x..>" for a byte.
std::string fallback_of_byte(unsigned char byte) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  return std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + '>';
}

constexpr std::size_t short_word = 64;                   // characters; up to this length, a scan is faster than a queue
constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581

/// Reads "vocab", in the order of ids.
TokenMap read_vocabulary(const Keys& model) {
  struct Token {
    std::string_view name;
    TokenId id = 0;
  };
  std::vector<Token> tokens;
  std::size_t bytes = 0;
  for (const auto& [name, value] : model.object("vocab").json().get_ref<const nlohmann::json::object_t&>()) {
    const std::optional<std::int32_t> id = value_as<std::int32_t>(value);
    if (!id)
      model.refuse("gives token \"", shortened(name), "\" the id ", shortened(json_text(value)),
                   "; ids are whole numbers of 0 to ", largest_id);
    tokens.push_back({.name = name, .id = static_cast<TokenId>(*id)});
    bytes += name.size();
  }
  std::ranges::sort(tokens, {}, &Token::id);
  const auto same = std::ranges::adjacent_find(tokens, {}, &Token::id);
  if (same != tokens.end())
    model.refuse("gives the id ", same->id, " to \"", shortened(same->name), "\" and to \"",
                 shortened(std::next(same)->name), "\"; each token needs its own");
  TokenMap map(tokens.size(), bytes);
  for (const Token& token : tokens) map.add(token.name, token.id);
  return map;
}

/// The two tokens of a merge.
struct Pair {
  std::string_view left, right;
};

/// Reads a merge, "a b" or ["a", "b"]; returns nothing for the line "#version ...".
std::optional<Pair> pair_of(const nlohmann::json& merge, const Keys& model) {
  const auto unclear = [&] {
    model.refuse("has the merge ", shortened(json_text(merge)), "; merges are \"a b\", or [\"a\", \"b\"]");
  };
  if (merge.is_array()) {
    if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) unclear();
    return Pair{merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  if (!merge.is_string()) unclear();
  const std::string_view text = merge.get_ref<const std::string&>();
  if (text.starts_with("#version")) return std::nullopt;
  const std::size_t space = text.find(' ');
  if (space == text.npos || text.find(' ', space + 1) != text.npos) unclear();
  return Pair{text.substr(0, space), text.substr(space + 1)};
}

/// Throws InputError for options of the model that are not supported.
void require_supported(const Keys& model) {
  if (const std::string type = model.text("type", "BPE", Null::absent); type != "BPE")
    model.refuse("\"", type, "\" is not supported; there is BPE");
  if (model.has("dropout") && model.at("dropout") != 0) model.refuse("has a dropout; set it to null");
  for (const char* const key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const std::string affix = model.text(key, "", Null::absent); !affix.empty())
      model.refuse("has a ", key, ", \"", shortened(affix), "\", which is not supported");
}

}  // namespace

bool append_bytes(std::string& out, std::string_view token) {
  const std::size_t size = out.size();
  for (std::size_t at = 0; at < token.size();) {
    const char32_t code = next_code_point(token, at);
    const int byte = code < 0x200 ? alphabet().bytes[code] : -1;
    if (byte < 0) {
      out.resize(size);
      return false;
    }
    out += static_cast<char>(byte);
  }
  return true;
}

std::optional<unsigned char> byte_of_fallback(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  std::string_view digits = token.substr(3, 2);
  if (digits[0] == '+') digits.remove_prefix(1);  // Rust accepts a sign, too
  return parsed<unsigned char>(digits, 16);
}

std::size_t next_space_mark(std::string_view text, std::size_t from) {
  std::size_t at = text.find(space_mark, from);
  while (at != text.npos && text.substr(0, at).ends_with(space_mark)) at = text.find(space_mark, at + 1);
  return at;
}

Bpe::Bpe(const Keys& model, bool byte_level) : source_(model.source()), byte_level_(byte_level) {
  require_supported(model);
  vocabulary_ = read_vocabulary(model);
  byte_fallback_ = model.boolean("byte_fallback", false, Null::absent);
  fuse_unknown_ = model.boolean("fuse_unk", false, Null::absent);
  ignore_merges_ = model.boolean("ignore_merges", false, Null::absent);
  if (model.has("unk_token")) {
    unknown_name_ = model.text("unk_token");
    unknown_ = vocabulary_.find(*unknown_name_);
  }
  for (unsigned i = 0; i < 256; ++i) {
    const auto byte = static_cast<unsigned char>(i);
    fallback_[i] = vocabulary_.find(fallback_of_byte(byte));
    of_byte_[i] = byte_level_ ? vocabulary_.find(character_of_byte(byte))
                  : i < 0x80  ? vocabulary_.find(std::string(1, static_cast<char>(i)))
                              : std::nullopt;
  }
  read_merges(model.array("merges"), model);
  if (!ignore_merges_ || !byte_level_) return;
  whole_words_ = TokenMap(vocabulary_.size());
  std::string bytes;
  for (std::size_t i = 0; i < vocabulary_.size(); ++i) {
    bytes.clear();
    if (append_bytes(bytes, vocabulary_.name(i))) whole_words_.add(bytes, vocabulary_.id(i));
  }
}

void Bpe::read_merges(const nlohmann::json& list, const Keys& model) {
  cuts_at_spaces_ = !byte_level_ && !ignore_merges_ && vocabulary_.find(space_mark).has_value();
  merges_ = PairMap(list.size());
  std::uint32_t rank = 0;
  std::string joined;
  for (const nlohmann::json& merge : list) {
    const std::optional<Pair> pair = pair_of(merge, model);
    if (!pair) continue;
    const auto need = [&](std::string_view token) {
      const std::optional<TokenId> found = vocabulary_.find(token);
      require<InputError>(found.has_value(), source_, ": merge ", rank, " of \"", shortened(pair->left), "\" and \"",
                          shortened(pair->right), "\" needs the token \"", shortened(token),
                          "\", which the vocabulary does not hold");
      return *found;
    };
    joined.assign(pair->left).append(pair->right);
    if (cuts_at_spaces_ && next_space_mark(joined, 1) != joined.npos) cuts_at_spaces_ = false;
    const TokenId first = need(pair->left), second = need(pair->right);
    merges_.set(first, second, {.rank = rank, .id = need(joined)});
    ++rank;
  }
}

TokenId Bpe::unknown() const {
  require<InputError>(unknown_.has_value(), source_, ": the unknown token \"", unknown_name_.value_or(""),
                      "\" is not in the vocabulary, and the text needs it; add it to the file");
  return *unknown_;
}

void Bpe::add_character(std::string_view character, bool& pending, std::vector<TokenId>& ids) const {
  const auto byte = [&](char c) { return static_cast<unsigned char>(c); };
  std::optional<TokenId> id;
  if (byte_level_ || byte(character[0]) < 0x80)
    id = of_byte_[byte(character[0])];
  else
    id = vocabulary_.find(character);
  if (id) {
    if (pending) ids.push_back(unknown());
    pending = false;
    ids.push_back(*id);
    return;
  }
  if (byte_fallback_) {
    const std::string_view bytes = byte_level_ ? character_of_byte(byte(character[0])) : character;
    if (std::all_of(bytes.begin(), bytes.end(), [&](char c) { return fallback_[byte(c)].has_value(); })) {
      for (const char c : bytes) ids.push_back(*fallback_[byte(c)]);  // inserted before a pending unknown token
      return;
    }
  }
  if (!unknown_name_) return;
  const TokenId unknown_id = unknown();
  if (pending && !fuse_unknown_) ids.push_back(unknown_id);
  pending = true;
}

void Bpe::append(std::string_view word, BpeScratch& scratch, std::vector<TokenId>& ids) const {
  if (ignore_merges_) {
    if (const std::optional<TokenId> whole = (byte_level_ ? whole_words_ : vocabulary_).find(word)) {
      ids.push_back(*whole);
      return;
    }
  }
  scratch.ids.clear();
  bool pending = false;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t length = byte_level_ ? 1 : utf8_length(static_cast<unsigned char>(word[at]));
    add_character(word.substr(at, length), pending, scratch.ids);
    at += length;
  }
  if (pending) scratch.ids.push_back(unknown());
  if (scratch.ids.size() <= short_word)
    merge_short(scratch.ids, scratch.merges);
  else
    merge_long(scratch);
  ids.insert(ids.end(), scratch.ids.begin(), scratch.ids.end());
}

void Bpe::merge_short(std::vector<TokenId>& ids, std::vector<Merge>& merges) const {
  if (ids.size() < 2) return;
  merges.clear();  // the merge of each token with the next one
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) merges.push_back(merges_.find(ids[i], ids[i + 1]));
  while (!merges.empty()) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < merges.size(); ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == Merge::none) return;
    ids[best] = merges[best].id;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(best));
    if (best > 0) merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best < merges.size()) merges[best] = merges_.find(ids[best], ids[best + 1]);
  }
}

void Bpe::merge_long(BpeScratch& scratch) const {
  constexpr std::uint32_t nowhere = 0xFFFFFFFF;
  std::vector<TokenId>& ids = scratch.ids;
  require<InputError>(ids.size() < nowhere, source_, ": a word of ", ids.size(), " characters; shorten the text");
  const auto count = static_cast<std::uint32_t>(ids.size());
  std::vector<std::uint32_t>&previous = scratch.previous, &next = scratch.next;
  auto& queue = scratch.queue;
  using Candidate = BpeScratch::Candidate;
  const auto later = [](const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
  };
  previous.resize(count);
  next.resize(count);
  queue.clear();
  std::vector<bool> gone(count);
  const auto offer = [&](std::uint32_t place) {
    const Merge merge = merges_.find(ids[place], ids[next[place]]);
    if (merge.rank == Merge::none) return;
    queue.push_back({merge.rank, place, merge.id});
    std::push_heap(queue.begin(), queue.end(), later);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    previous[i] = i == 0 ? nowhere : i - 1;
    next[i] = i + 1 == count ? nowhere : i + 1;
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), later);
    const Candidate best = queue.back();
    queue.pop_back();
    const std::uint32_t right = gone[best.place] ? nowhere : next[best.place];
    if (right == nowhere) continue;
    const Merge merge = merges_.find(ids[best.place], ids[right]);
    if (merge.rank == Merge::none || merge.id != best.id) continue;  // outdated: one of the two tokens was merged
    ids[best.place] = best.id;
    gone[right] = true;
    next[best.place] = next[right];
    if (next[right] != nowhere) previous[next[right]] = best.place;
    if (previous[best.place] != nowhere) offer(previous[best.place]);
    if (next[best.place] != nowhere) offer(best.place);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i)
    if (!gone[i]) ids[kept++] = ids[i];
  ids.resize(kept);
}

}  // namespace fsdp::text
