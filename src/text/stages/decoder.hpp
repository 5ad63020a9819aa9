// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decoders, "decoder" of tokenizer.json: convert tokens to text.
///
/// To add one: add a struct here, and its case and its name in decoder.cpp.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "normalizer.hpp"

namespace fsdp::text {

struct DecodeByteLevel {};
struct DecodeByteFallback {};
struct DecodeFuse {};

/// Replaces `replacement` by a space; in the first token it is removed if `prepended`.
struct DecodeMetaspace {
  std::string replacement;
  bool prepended = true;
};

/// Removes up to `start` and `stop` times `content` from the beginning and the end of each token.
struct DecodeStrip {
  std::string content;
  std::size_t start = 0;
  std::size_t stop = 0;
};

/// A sequence of decoding steps.
class Decoder {
 public:
  using Step = std::variant<DecodeByteLevel, DecodeByteFallback, DecodeFuse, DecodeMetaspace, DecodeStrip, Replace>;

  Decoder() = default;
  Decoder(std::vector<Step> steps, bool spaces_between) : steps_(std::move(steps)), spaces_between_(spaces_between) {}

  /// Returns whether this is the decoder of byte-level files: then a token's bytes do not depend on its neighbours.
  bool byte_level() const { return steps_.size() == 1 && std::holds_alternative<DecodeByteLevel>(steps_[0]); }

  /// Returns the text of tokens, given by their names.
  std::string decode(std::vector<std::string> tokens, Budget& budget) const;

 private:
  std::vector<Step> steps_;
  bool spaces_between_ = true;  // without a decoder in the file, tokens are joined by spaces
};

}  // namespace fsdp::text
