// SPDX-License-Identifier: Apache-2.0
/// @file
/// How tokens become text: "decoder" of tokenizer.json.
///
/// To add one: a struct here, its case in decoder.cpp, its name in decoder_json.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "normalizer.hpp"

namespace fsdp::text {

struct DecodeByteLevel {};
struct DecodeByteFallback {};
struct DecodeFuse {};

/// `replacement` becomes a space; in the first token it goes, where encoding prepends one.
struct DecodeMetaspace {
  std::string replacement;
  bool prepended = true;
};

/// At most so many of a character go from both ends of each token.
struct DecodeStrip {
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};

class Decoder {
 public:
  using Step = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeMetaspace, DecodeStrip, Replace>;

  Decoder() = default;
  Decoder(std::vector<Step> steps, bool spaces_between) : steps_(std::move(steps)), spaces_between_(spaces_between) {}

  /// The decoder of byte-level files: a token's bytes do not depend on its neighbours.
  bool byte_level() const { return steps_.size() == 1 && std::holds_alternative<DecodeByteLevel>(steps_[0]); }

  /// The text of tokens by their names.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  std::vector<Step> steps_;
  bool spaces_between_ = true;  // a file without a decoder joins its tokens so
};

}  // namespace fsdp::text
