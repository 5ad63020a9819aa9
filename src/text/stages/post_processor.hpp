// SPDX-License-Identifier: Apache-2.0
/// @file
/// Post-processors, "post_processor" of tokenizer.json: put special tokens around the ids of a text.
#pragma once

#include <vector>

#include <tessera/text/tokenizer.hpp>

#include "steps.hpp"

namespace fsdp::text {

/// A part of a template: the text's ids, or special tokens. (ByteLevel only changes offsets and needs no template.)
struct TemplatePiece {
  bool text = false;
  std::vector<TokenId> ids;  ///< the special tokens, if this is not the text
};

/// Templates, each applied to the result of the previous one.
using PostProcessor = std::vector<std::vector<TemplatePiece>>;

PostProcessor read_post_processor(const Keys& stage);

/// Applies a post-processor to the ids from `begin` on.
void apply(const PostProcessor& processor, bool special, std::size_t begin, std::vector<TokenId>& ids);

}  // namespace fsdp::text
