// SPDX-License-Identifier: Apache-2.0
/// @file
/// What is put around the ids of a text: "post_processor" of tokenizer.json.
#pragma once

#include <vector>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

/// A template: ids, and places of the text's own. ByteLevel, which moves offsets alone, is none.
struct Template {
  struct Piece {
    bool text = false;
    std::vector<TokenId> ids;  ///< where it is not the text
  };
  std::vector<Piece> pieces;
};

/// Templates, each around what the one before made.
using PostProcessor = std::vector<Template>;

/// Applies a post-processor to the ids from `begin` on.
void apply(const PostProcessor& processor, bool special, std::size_t begin, std::vector<TokenId>& ids);

}  // namespace fsdp::text
