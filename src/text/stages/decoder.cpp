// SPDX-License-Identifier: Apache-2.0
/// @file
/// The stages after the model: post-processors and decoders.
#include <algorithm>
#include <utility>

#include "../bpe/bpe.hpp"
#include "../unicode/code_points.hpp"
#include "stages.hpp"

namespace fsdp::text {
namespace {

constexpr std::size_t most_special_ids = 10'000, most_texts = 16;

std::vector<TokenId> ids_of(const Keys& part, const std::string& token) {
  const Keys tokens = part.object("special_tokens");
  if (!tokens.has(token.c_str()))
    part.refuse("\"TemplateProcessing\" uses \"", shortened(token), "\", which its special_tokens do not hold");
  std::vector<TokenId> ids;
  for (const nlohmann::json& value : tokens.object(token.c_str()).array("ids")) {
    const std::optional<std::int32_t> id = value_as<std::int32_t>(value);
    if (!id)
      part.refuse("\"TemplateProcessing\" has the id ", shortened(json_text(value)), "; ids are whole numbers of 0 to ",
                  largest_id);
    ids.push_back(static_cast<TokenId>(*id));
  }
  return ids;
}

/// Reads a template. Updates and limits the totals over all templates, `texts` and `ids`, since a sequence of templates
/// could double a text repeatedly.
std::vector<TemplatePiece> read_template(const Keys& part, std::size_t& texts, std::size_t& ids) {
  std::vector<TemplatePiece> pieces;
  std::size_t texts_here = 0;
  for (const nlohmann::json& entry : part.array("single")) {
    const Keys piece(entry, part.source(), part.name() + "'s template");
    if (piece.has("Sequence")) {
      const std::string which = piece.object("Sequence").text("id");
      if (which != "A") part.refuse("\"TemplateProcessing\" asks for a second text in the template of a single one");
      pieces.push_back({.text = true, .ids = {}});
      ++texts_here;
    } else {
      pieces.push_back({.text = false, .ids = ids_of(part, piece.object("SpecialToken").text("id"))});
      ids += 1 + pieces.back().ids.size();
      if (ids > most_special_ids) part.refuse("adds more than ", most_special_ids, " special tokens to a text");
    }
    if (texts * texts_here > most_texts) part.refuse("repeats a text more than ", most_texts, " times");
  }
  texts *= std::max<std::size_t>(texts_here, 1);
  return pieces;
}

}  // namespace

void apply(const PostProcessor& processor, bool special, std::size_t begin, std::vector<TokenId>& ids) {
  const auto first = static_cast<std::ptrdiff_t>(begin);
  for (const std::vector<TemplatePiece>& pieces : processor) {
    const std::vector<TokenId> text(ids.begin() + first, ids.end());
    ids.resize(begin);
    for (const TemplatePiece& piece : pieces) {
      if (!piece.text && !special) continue;
      const std::vector<TokenId>& part = piece.text ? text : piece.ids;
      ids.insert(ids.end(), part.begin(), part.end());
    }
  }
}

PostProcessor read_post_processor(const Keys& stage) {
  PostProcessor processor;
  std::size_t texts = 1, ids = 0;
  for (const Keys& step : steps_of(stage, "processors")) {
    const std::string type = step.text("type");
    if (type == "TemplateProcessing") {
      processor.push_back(read_template(step, texts, ids));
    } else if (type != "ByteLevel") {  // ByteLevel only changes offsets
      step.refuse("\"", type, "\" is not supported; there are TemplateProcessing, ByteLevel and Sequence");
    }
  }
  return processor;
}

namespace {

using Tokens = std::vector<std::string>;

Tokens decode_byte_level(Tokens tokens, Budget&) {
  std::string bytes, text;
  for (const std::string& token : tokens)
    if (!append_bytes(bytes, token)) bytes += token;
  append_replacing(text, bytes);
  return {std::move(text)};
}

/// Replaces each run of tokens <0x..> by its bytes; by one U+FFFD per byte if they are not valid UTF-8.
Tokens decode_byte_fallback(Tokens tokens, Budget&) {
  Tokens out;
  std::string bytes;
  const auto flush = [&] {
    if (valid_length(bytes) == bytes.size()) {
      if (!bytes.empty()) out.push_back(bytes);
    } else {
      out.insert(out.end(), bytes.size(), std::string(replacement));
    }
    bytes.clear();
  };
  for (std::string& token : tokens) {
    if (const auto byte = byte_of_fallback(token)) {
      bytes += static_cast<char>(*byte);
      continue;
    }
    flush();
    out.push_back(std::move(token));
  }
  flush();
  return out;
}

Tokens fuse(Tokens tokens, Budget&) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return {std::move(text)};
}

void replace_in(std::string& token, const Replace& replace, Budget& budget) {
  std::string text;
  replace.append(text, token, budget);
  token = std::move(text);
}

Decoder::Step replace_step(const Keys& step) {
  return [replace = read_replace(step)](Tokens tokens, Budget& budget) {
    for (std::string& token : tokens) replace_in(token, replace, budget);
    return tokens;
  };
}

/// Replaces the "replacement" character by a space, but removes it from the first token if it was prepended there.
Decoder::Step metaspace_step(const Keys& step) {
  const std::string scheme = step.text("prepend_scheme", "always", Null::absent);
  const bool prepended = scheme != "never" && step.boolean("add_prefix_space", true, Null::absent);
  return [mark = character_at(step, "replacement"), prepended](Tokens tokens, Budget& budget) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      replace_in(tokens[i], {.pattern = {}, .literal = mark, .content = i == 0 && prepended ? "" : " "}, budget);
    return tokens;
  };
}

/// Removes a character from each token: up to "start" times at the beginning and up to "stop" times at the end.
Decoder::Step strip_step(const Keys& step) {
  constexpr std::int64_t most = 1000;
  const std::string content = character_at(step, "content");
  const std::int64_t start = step.integer_up_to("start", most), stop = step.integer_up_to("stop", most);
  return [content, start, stop](Tokens tokens, Budget&) {
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (std::int64_t i = 0; i < start && text.starts_with(content); ++i) text.remove_prefix(content.size());
      for (std::int64_t i = 0; i < stop && text.ends_with(content); ++i) text.remove_suffix(content.size());
      token = std::string(text);
    }
    return tokens;
  };
}

Decoder::Step read_step(const Keys& step) {
  const std::string type = step.text("type");
  if (type == "ByteLevel") return decode_byte_level;
  if (type == "ByteFallback") return decode_byte_fallback;
  if (type == "Fuse") return fuse;
  if (type == "Replace") return replace_step(step);
  if (type == "Metaspace") return metaspace_step(step);
  if (type == "Strip") return strip_step(step);
  step.refuse("\"", type,
              "\" is not supported; there are ByteLevel, Metaspace, ByteFallback, Fuse, Replace, Strip and Sequence");
}

}  // namespace

std::string Decoder::decode(std::vector<std::string> tokens, Budget& budget) const {
  for (const Step& step : steps) {
    budget.spend(tokens.size());
    tokens = step(std::move(tokens), budget);
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (spaces_between && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

Decoder read_decoder(const Keys& stage) {
  const std::vector<Keys> steps = steps_of(stage, "decoders");
  Decoder decoder{
      .steps = {}, .byte_level = steps.size() == 1 && steps[0].text("type") == "ByteLevel", .spaces_between = false};
  for (const Keys& step : steps) decoder.steps.push_back(read_step(step));
  return decoder;
}

}  // namespace fsdp::text
