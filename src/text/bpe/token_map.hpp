// SPDX-License-Identifier: Apache-2.0
/// @file
/// A hash table of token ids by name. All names are in one string and all slots in one array, so that a large
/// vocabulary is built fast.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.hpp>

namespace fsdp::text {

extern const std::uint64_t hash_secret;  ///< random, different in each process

/// Maps names of tokens to ids.
class TokenMap {
 public:
  /// Reserves room for `count` names with `bytes` in total.
  explicit TokenMap(std::size_t count = 0, std::size_t bytes = 0);

  void add(std::string_view name, TokenId id);  ///< the name must be new
  std::optional<TokenId> find(std::string_view name) const;

  std::size_t size() const { return names_.size(); }
  std::string_view name(std::size_t place) const;  ///< index in the order of insertion
  TokenId id(std::size_t place) const { return names_[place].id; }

 private:
  struct Name {
    std::uint32_t begin = 0, length = 0;
    TokenId id = 0;
  };
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t place = 0;  // index in names_ plus 1; 0: free
  };

  std::string text_;
  std::vector<Name> names_;
  std::vector<Slot> slots_;
};

/// Hashes two numbers with a per-process secret, so that a file cannot contain names, pairs or words chosen to collide.
inline std::uint64_t hash_of(std::uint64_t first, std::uint64_t second) {
  __extension__ using Product = unsigned __int128;
  const Product product = static_cast<Product>(first ^ hash_secret) * (second | 1);
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

/// Loads the eight bytes that begin at `from`.
inline std::uint64_t load8(const char* from) {
  std::uint64_t value = 0;
  std::memcpy(&value, from, 8);
  return value;
}

/// Returns a hash of bytes.
std::uint32_t hash_of(std::string_view bytes);

}  // namespace fsdp::text
