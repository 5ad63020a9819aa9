// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ids by the names of tokens: names in one string, slots in one array, which a large vocabulary fills fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/text/tokenizer.hpp>

namespace fsdp::text {

class TokenMap {
 public:
  /// For at most `count` names of `bytes` in all.
  explicit TokenMap(std::size_t count = 0, std::size_t bytes = 0);

  void add(std::string_view name, TokenId id);  ///< a name that is not there
  std::optional<TokenId> find(std::string_view name) const;

  std::size_t size() const { return names_.size(); }
  std::string_view name(std::size_t place) const;  ///< in the order they were added
  TokenId id(std::size_t place) const { return names_[place].id; }

 private:
  struct Name {
    std::uint32_t begin = 0, length = 0;
    TokenId id = 0;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t place = 0;  // 1 more than that of the name; 0: free
  };

  std::string text_;
  std::vector<Name> names_;
  std::vector<Slot> slots_;
};

/// A hash of bytes.
std::uint32_t hash_of(std::string_view bytes);

}  // namespace fsdp::text
