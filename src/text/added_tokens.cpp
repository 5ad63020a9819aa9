// SPDX-License-Identifier: Apache-2.0
#include "added_tokens.hpp"

#include <algorithm>

#include "stages/steps.hpp"
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
  std::size_t before = begin > 0 ? previous_code_point(text, begin) : 0, behind = end;
  if (begin > 0 && is_word(next_code_point(text, before))) return false;
  return end == text.size() || !is_word(next_code_point(text, behind));
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
      for (std::size_t before = begin; begin > done; begin = before) {
        before = previous_code_point(text, begin);
        std::size_t place = before;
        if (!is_space(next_code_point(text, place))) break;
      }
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

}  // namespace fsdp::text
