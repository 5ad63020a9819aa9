// SPDX-License-Identifier: Apache-2.0
#include "decoder.hpp"

#include <utility>

#include "../bpe/byte_alphabet.hpp"
#include "../unicode/code_points.hpp"
#include "normalizer.hpp"

namespace fsdp::text {
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
