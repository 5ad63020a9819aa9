// SPDX-License-Identifier: Apache-2.0
/// @file
/// Decoders, "decoder" of tokenizer.json: convert tokens to text.
///
/// To add one, add its name and its function to decoder.cpp.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "../budget.hpp"
#include "steps.hpp"

namespace fsdp::text {

/// A sequence of decoding steps.
struct Decoder {
  /// Converts tokens, given by their names, to other tokens.
  using Step = std::function<std::vector<std::string>(std::vector<std::string> tokens, Budget& budget)>;
  std::vector<Step> steps;
  bool byte_level = false;     ///< the decoder of byte-level files: a token's bytes do not depend on its neighbours
  bool spaces_between = true;  ///< without a decoder in the file, tokens are joined by spaces

  /// Returns the text of tokens, given by their names.
  std::string decode(std::vector<std::string> tokens, Budget& budget) const;
};

Decoder read_decoder(const Keys& stage);

}  // namespace fsdp::text
