// SPDX-License-Identifier: Apache-2.0
#include "chat_row.hpp"

#include <string.h>  // NOLINT(modernize-deprecated-headers): memmem is not standard C

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/text/chat_template.hpp>

#include "../fsdp/core/json/strict_json.hpp"
#include "jinja/strings.hpp"
#include "unicode/code_points.hpp"

namespace fsdp::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonLimits argument_limits{
    .depth = 64, .values = 1'000'000, .array = 100'000, .text = 100'000'000, .keep_digits = true};

/// Returns the offset of the first `what` in `text`; npos if there is none. memmem takes linear time, std::string may
/// not.
std::size_t place_of(std::string_view what, std::string_view text) {
  if (what.size() > text.size()) return std::string_view::npos;
  const void* found = ::memmem(text.data(), text.size(), what.data(), what.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

/// The rendered text after JSON's escapes are decoded, with a mapping between the offsets in both texts.
struct Decoded {
  std::string text = {};
  /// For each escape, the offset of its end in `text` and in the rendered text. Between escapes both advance equally.
  std::vector<std::pair<std::size_t, std::size_t>> escapes = {};

  std::size_t place(std::size_t byte) const {
    const auto next = std::ranges::upper_bound(escapes, byte, {}, &std::pair<std::size_t, std::size_t>::first);
    return next == escapes.begin() ? byte : std::prev(next)->second + (byte - std::prev(next)->first);
  }
  std::size_t byte(std::size_t place) const {
    const auto next = std::ranges::upper_bound(escapes, place, {}, &std::pair<std::size_t, std::size_t>::second);
    const std::size_t byte =
        next == escapes.begin() ? place : std::prev(next)->first + (place - std::prev(next)->second);
    return std::min(byte, next == escapes.end() ? text.size() : next->first);
  }
};

/// Replaces JSON's escapes by the characters that they represent.
Decoded decoded(const Decoded& from) {
  constexpr std::string_view letters = "\"\\/'bfnrt", meanings = "\"\\/'\b\f\n\r\t";
  const std::string& text = from.text;
  Decoded to;
  auto earlier = from.escapes.begin();
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 1;
    const std::size_t letter = text[at] == '\\' && at + 1 < text.size() ? letters.find(text[at + 1]) : letters.npos;
    if (letter != letters.npos) {
      to.text += meanings[letter];
      length = 2;
    } else if (const UnicodeEscape escape = unicode_escape(std::string_view(text).substr(at)); escape.length > 0) {
      append_utf8(to.text, is_surrogate(escape.code) ? 0xFFFD : escape.code);
      length = escape.length;
    } else {
      to.text += text[at];
    }
    at += length;
    const bool passes = earlier != from.escapes.end() && earlier->first <= at;
    if (length > 1 || passes) to.escapes.emplace_back(to.text.size(), from.place(at));
    while (earlier != from.escapes.end() && earlier->first <= at) ++earlier;
  }
  return to;
}

/// A searchable rendered text at up to three levels: unchanged, and with JSON's escapes decoded once and twice.
class Rendered {
 public:
  explicit Rendered(std::string_view text) {
    levels_.push_back({.text = std::string(text)});
    while (levels_.size() < 3 && levels_.back().text.find('\\') != std::string::npos)
      levels_.push_back(decoded(levels_.back()));
  }

  std::size_t size() const { return levels_.front().text.size(); }
  const std::vector<Decoded>& levels() const { return levels_; }

  /// Returns the first occurrence of `what` in [from, to) at any level. Searches windows of doubling size at all
  /// levels, so that the time is proportional to the distance to that occurrence.
  std::optional<TextRange> find(std::string_view what, std::size_t from, std::size_t to) const {
    for (std::size_t reach = 4 * what.size() + 256;; reach *= 2) {
      std::optional<TextRange> first;
      bool more = false;
      for (const Decoded& level : levels_) {
        const std::size_t begin = level.byte(from), end = std::max(level.byte(to), begin);
        more = more || reach < end - begin;
        const std::size_t at = place_of(what, std::string_view(level.text).substr(begin, std::min(reach, end - begin)));
        if (at == std::string_view::npos) continue;
        const TextRange range{level.place(begin + at), level.place(begin + at + what.size())};
        if (!first || range.begin < first->begin) first = range;
      }
      if (first || !more) return first;
    }
  }

 private:
  std::vector<Decoded> levels_;
};

/// Returns for each text of `all` whether `text` contains it. Uses the Aho-Corasick automaton.
std::vector<bool> found_in(std::string_view text, const std::vector<std::string>& all) {
  struct Node {
    std::uint32_t parent = 0, depth = 0, shorter = 0;  // `shorter`: suffix link, the node of the longest proper suffix
    unsigned char letter = 0;
    bool seen = false;
  };
  std::vector<Node> nodes(1);
  std::unordered_map<std::uint64_t, std::uint32_t> edges;
  const auto key = [](std::uint32_t node, unsigned char letter) { return std::uint64_t{node} << 8 | letter; };
  const auto next = [&](std::uint32_t node, unsigned char letter) {  // follows suffix links; the root if none matches
    for (;; node = nodes[node].shorter) {
      const auto found = edges.find(key(node, letter));
      if (found != edges.end()) return found->second;
      if (node == 0) return node;
    }
  };
  std::vector<std::uint32_t> last;
  for (const std::string& each : all) {
    std::uint32_t node = 0;
    for (const char c : each) {
      const auto letter = static_cast<unsigned char>(c);
      const auto [edge, is_new] = edges.try_emplace(key(node, letter), static_cast<std::uint32_t>(nodes.size()));
      if (is_new) nodes.push_back({.parent = node, .depth = nodes[node].depth + 1, .letter = letter});
      node = edge->second;
    }
    last.push_back(node);
  }
  std::vector<std::uint32_t> order(nodes.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](std::uint32_t node) { return nodes[node].depth; });
  for (const std::uint32_t node : order)
    if (nodes[node].depth > 1) nodes[node].shorter = next(nodes[nodes[node].parent].shorter, nodes[node].letter);
  std::uint32_t state = 0;
  for (const char c : text) nodes[state = next(state, static_cast<unsigned char>(c))].seen = true;
  for (auto node = order.rbegin(); node != order.rend(); ++node)
    if (nodes[*node].seen) nodes[nodes[*node].shorter].seen = true;
  std::vector<bool> found;
  for (const std::uint32_t node : last) found.push_back(nodes[node].seen);
  return found;
}

/// The kind of an object's keys.
enum class KeysOf : std::uint8_t {
  data,    ///< part of the data: searched for like texts
  schema,  ///< keywords of a tool's schema: not searched for, nor are its types, for which a template may write its own
           ///< words
  properties,  ///< names of a schema's properties: searched for like texts
};

/// Appends the non-empty texts in a value, including the keys that count as texts.
void append_texts(const Json& value, KeysOf keys, std::vector<std::string>& texts) {  // NOLINT(misc-no-recursion)
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) texts.push_back(value);
  const KeysOf of_items = keys == KeysOf::data ? KeysOf::data : KeysOf::schema;
  if (value.is_array())
    for (const Json& item : value) append_texts(item, of_items, texts);
  if (!value.is_object()) return;
  for (const auto& [key, item] : value.items()) {
    if (keys != KeysOf::schema && !key.empty()) texts.push_back(key);
    if (keys == KeysOf::schema && key == "type") continue;
    append_texts(item, keys == KeysOf::schema && key == "properties" ? KeysOf::properties : of_items, texts);
  }
}

/// A part of a message to search for. Reasoning may be absent.
struct Piece {
  std::string text = {};
  MissingPart::Kind kind = MissingPart::Kind::text;
  bool reasoning = false;
  std::string called = {};  // name of the called tool
};

void append_piece(std::string_view text, bool reasoning, std::vector<Piece>& pieces) {
  text = jinja::strip(text);
  if (!text.empty()) pieces.push_back({.text = std::string(text), .reasoning = reasoning});
}

/// Appends the pieces of a text. In an answer, text within a think block, or before an unmatched </think>, is
/// reasoning.
void append_text(std::string_view text, bool answer, std::vector<Piece>& pieces) {
  constexpr std::string_view begin = "<think>", end = "</think>";
  for (std::size_t close = 0; answer && (close = text.find(end)) != text.npos;) {
    const std::size_t open = std::min(text.substr(0, close).find(begin), close);
    const std::size_t thought = open == close ? 0 : open + begin.size();
    if (open != close) append_piece(text.substr(0, open), false, pieces);
    append_piece(text.substr(thought, close - thought), true, pieces);
    text.remove_prefix(close + end.size());
  }
  append_piece(text, false, pieces);
}

void append_content(const Json& message, std::vector<Piece>& pieces) {
  const auto append = [&](const Json& text) {
    append_text(text.get_ref<const std::string&>(), is_answer(message), pieces);
  };
  const Json& content = message.at("content");
  if (content.is_string()) append(content);
  if (content.is_array())
    for (const Json& part : content) append(part.at("text"));
}

void append_call(const Json& call, std::vector<Piece>& pieces) {
  const Json& function = call.contains("function") ? call.at("function") : call;
  const std::string name = function.at("name");
  const Json& arguments = function.at("arguments");
  std::vector<std::string> texts = {name};
  std::optional<Json> parsed;
  if (arguments.is_string()) {
    try {
      parsed = parse_strict_ordered(arguments.get_ref<const std::string&>(), "arguments", argument_limits);
    } catch (const InputError&) {  // not JSON: the arguments are one text
      texts.emplace_back(jinja::strip(arguments.get_ref<const std::string&>()));
    }
  }
  append_texts(arguments.is_string() ? parsed.value_or(nullptr) : arguments, KeysOf::data, texts);
  for (std::string& text : texts)
    if (!text.empty()) pieces.push_back({.text = std::move(text), .kind = MissingPart::Kind::call, .called = name});
}

std::vector<Piece> pieces_of(const Json& message) {
  std::vector<Piece> pieces;
  for (const std::string_view key : reasoning_keys) {
    const auto found = message.find(key);
    if (found == message.end()) continue;
    const std::string_view text = jinja::strip(found->get_ref<const std::string&>());
    const bool again = std::ranges::any_of(pieces, [&](const Piece& piece) { return piece.text == text; });
    if (!again) append_piece(text, true, pieces);
  }
  append_content(message, pieces);
  if (calls_tools(message))
    for (const Json& call : message.at("tool_calls")) append_call(call, pieces);
  return pieces;
}

/// Finds the pieces of messages in a rendered text, in order.
class Reader {
 public:
  explicit Reader(const Rendered& text) : text_(text) {}

  /// Advances to an offset if it is ahead of the current one.
  void skip_to(std::size_t place) {
    read_reasoning(place);
    at_ = std::max(at_, place);
  }

  /// Advances past a piece. Returns whether it was found.
  bool read(const Piece& piece) {
    if (piece.reasoning) {
      reasoning_.push_back(piece.text);
      return true;
    }
    std::optional<TextRange> found = text_.find(piece.text, at_, text_.size());
    if (!found) return false;
    const std::size_t before = at_;
    read_reasoning(found->begin);
    if (at_ > before) {  // the reasoning may also contain the piece's text: prefer a match after it
      const std::optional<TextRange> behind = text_.find(piece.text, at_, text_.size());
      if (behind) found = behind;
    }
    at_ = std::max(at_, found->end);
    return true;
  }

  /// Searches for the last reasoning. Returns the number of reasoning texts that were absent.
  std::size_t finish() {
    read_reasoning(text_.size());
    return absent_;
  }

 private:
  /// Searches for the pending reasoning, up to about offset `to`. If one text is absent, counts the rest as absent
  /// without searching, to bound the time.
  void read_reasoning(std::size_t to) {
    for (std::size_t i = 0; i < reasoning_.size(); ++i) {
      const std::optional<TextRange> found =
          text_.find(reasoning_[i], at_, std::min(text_.size(), to + 2 * reasoning_[i].size()));
      if (!found) {
        absent_ += reasoning_.size() - i;
        break;
      }
      at_ = found->end;
    }
    reasoning_.clear();
  }

  const Rendered& text_;
  std::size_t at_ = 0;
  std::vector<std::string> reasoning_;  // pending: not searched for yet
  std::size_t absent_ = 0;
};

/// Returns the name of the first tool that has a text which is absent from `text`; nothing if all texts are present.
std::optional<std::string> missing_tool(const Json& tools, const Rendered& text) {
  std::vector<std::string> texts, names;  // `names`: for each text, its tool's name
  for (const Json& tool : tools) {
    const auto wrapped = tool.find("function");
    const Json& function = wrapped != tool.end() && wrapped->is_object() ? *wrapped : tool;
    const std::string name(value_at<std::string_view>(function, "name").value_or(""));
    append_texts(function, KeysOf::schema, texts);
    names.resize(texts.size(), name);
  }
  std::size_t in_order = 0;
  for (std::size_t at = 0; in_order < texts.size(); ++in_order) {  // fast path: most templates write schemas unchanged
    const std::optional<TextRange> found = text.find(texts[in_order], at, text.size());
    if (!found) break;
    at = found->end;
  }
  if (in_order == texts.size()) return std::nullopt;
  std::vector<bool> found(texts.size());
  for (const Decoded& level : text.levels()) {
    const std::vector<bool> here = found_in(level.text, texts);
    for (std::size_t i = 0; i < texts.size(); ++i) found[i] = found[i] || here[i];
  }
  const auto first = std::ranges::find(found, false);
  if (first == found.end()) return std::nullopt;
  return names[static_cast<std::size_t>(first - found.begin())];
}

}  // namespace

MissingPart missing_part(const ChatRow& row, std::string_view text, std::size_t front,
                         std::span<const TextRange> learned) {
  const Rendered rendered(text);
  Reader reader(rendered);
  for (std::size_t i = 0; i < row.messages.size(); ++i) {
    if (row.learned[i] && !learned.empty()) {  // an answer's text may also occur before it, such as in a tool's schema
      reader.skip_to(learned.front().begin);
      learned = learned.subspan(1);
    }
    for (const Piece& piece : pieces_of(row.messages[i]))
      if (!reader.read(piece)) return {.kind = piece.kind, .message = row.number(i), .name = piece.called};
  }
  MissingPart missing{.reasoning = reader.finish()};
  if (row.tools.is_array() && !row.tools.empty()) {
    if (std::optional<std::string> name = missing_tool(row.tools, Rendered(text.substr(0, front))))
      missing = {.kind = MissingPart::Kind::tool, .name = *std::move(name)};
  }
  return missing;
}

bool is_empty(const Json& message, bool reasoning) {
  return std::ranges::all_of(pieces_of(message), [&](const Piece& piece) { return piece.reasoning && !reasoning; });
}

bool has_all_parts(const ChatRow& row, std::string_view text) {
  const Rendered rendered(text);
  Reader reader(rendered);
  for (const Json& message : row.messages) {
    if (!message.at("content").is_array()) continue;
    std::vector<Piece> pieces;
    append_content(message, pieces);
    if (!std::ranges::all_of(pieces, [&](const Piece& piece) { return reader.read(piece); })) return false;
  }
  return true;
}

}  // namespace fsdp::text
