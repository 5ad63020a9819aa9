// SPDX-License-Identifier: Apache-2.0
#include "decoder.hpp"

#include "../bpe/byte_alphabet.hpp"
#include "../json_part.hpp"
#include "../unicode/code_points.hpp"

namespace fsdp::text {
namespace {

using Tokens = std::vector<std::string>;

Tokens apply(const DecodeByteLevel&, Tokens tokens, Budget&) {
  std::string bytes, text;
  for (const std::string& token : tokens)
    if (!append_bytes(bytes, token)) bytes += token;
  append_replacing(text, bytes);
  return {std::move(text)};
}

/// Replaces each run of tokens <0x..> by its bytes; by one U+FFFD per byte if they are not valid UTF-8.
Tokens apply(const DecodeByteFallback&, Tokens tokens, Budget&) {
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

Tokens apply(const DecodeFuse&, Tokens tokens, Budget&) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return {std::move(text)};
}

Tokens apply(const DecodeMetaspace& metaspace, Tokens tokens, Budget& budget) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    std::string text;
    const Replace replace{
        .pattern = {}, .literal = metaspace.replacement, .content = i == 0 && metaspace.prepended ? "" : " "};
    replace.append(text, tokens[i], budget);
    tokens[i] = std::move(text);
  }
  return tokens;
}

Tokens apply(const DecodeStrip& strip, Tokens tokens, Budget&) {
  for (std::string& token : tokens) {
    std::string_view text = token;
    for (std::size_t i = 0; i < strip.start && text.starts_with(strip.content); ++i)
      text.remove_prefix(strip.content.size());
    for (std::size_t i = 0; i < strip.stop && text.ends_with(strip.content); ++i)
      text.remove_suffix(strip.content.size());
    token = std::string(text);
  }
  return tokens;
}

Tokens apply(const Replace& replace, Tokens tokens, Budget& budget) {
  for (std::string& token : tokens) {
    std::string text;
    replace.append(text, token, budget);
    token = std::move(text);
  }
  return tokens;
}

}  // namespace

std::string Decoder::decode(std::vector<std::string> tokens, Budget& budget) const {
  for (const Step& step : steps_) {
    budget.spend(tokens.size());
    tokens = std::visit([&](const auto& kind) { return apply(kind, std::move(tokens), budget); }, step);
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (spaces_between_ && i > 0) text += ' ';
    text += tokens[i];
  }
  return text;
}

Decoder read_decoder(const JsonPart& part) {
  std::vector<Decoder::Step> steps;
  for (const JsonPart& step : part.steps("decoders")) {
    const std::string type = step.type();
    if (type == "ByteLevel") {
      steps.emplace_back(DecodeByteLevel{});
    } else if (type == "ByteFallback") {
      steps.emplace_back(DecodeByteFallback{});
    } else if (type == "Fuse") {
      steps.emplace_back(DecodeFuse{});
    } else if (type == "Replace") {
      steps.emplace_back(read_replace(step));
    } else if (type == "Metaspace") {
      const std::string scheme = step.has("prepend_scheme") ? step.text("prepend_scheme") : "always";
      const bool prepended = scheme != "never" && step.flag("add_prefix_space", true);
      steps.emplace_back(DecodeMetaspace{.replacement = step.character("replacement"), .prepended = prepended});
    } else if (type == "Strip") {
      constexpr std::int64_t most = 1000;
      steps.emplace_back(DecodeStrip{.content = step.character("content"),
                                     .start = static_cast<std::size_t>(step.number("start", most)),
                                     .stop = static_cast<std::size_t>(step.number("stop", most))});
    } else {
      step.refuse(
          "\"", type,
          "\" is not supported; there are ByteLevel, Metaspace, ByteFallback, Fuse, Replace, Strip and Sequence");
    }
  }
  return Decoder(std::move(steps), false);
}

}  // namespace fsdp::text
