// SPDX-License-Identifier: Apache-2.0
#include "post_processor.hpp"

namespace fsdp::text {

void apply(const PostProcessor& processor, bool special, std::size_t begin, std::vector<TokenId>& ids) {
  const auto first = static_cast<std::ptrdiff_t>(begin);
  for (const Template& shape : processor) {
    const std::vector<TokenId> text(ids.begin() + first, ids.end());
    ids.resize(begin);
    for (const Template::Piece& piece : shape.pieces) {
      if (!piece.text && !special) continue;
      const std::vector<TokenId>& part = piece.text ? text : piece.ids;
      ids.insert(ids.end(), part.begin(), part.end());
    }
  }
}

}  // namespace fsdp::text
