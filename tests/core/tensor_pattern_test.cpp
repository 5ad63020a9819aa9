// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/tensor_pattern.hpp>

#include <array>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>

namespace fsdp {
namespace {

TEST(TensorPattern, MatchesUnitsTensorsPartsOfNamesRolesAndSizes) {
  const Parameter table{.name = "model.embed_tokens.weight", .shape = {10, 4}, .role = Role::table};
  const auto matches = [&](const TensorPattern& pattern) { return pattern.matches("embedding", table); };
  for (const char* const names :
       {"*", "embedding", "embed_tokens", "lm_head|embed_tokens", "model.*", "*.weight", "w*t"})
    EXPECT_TRUE(matches({.names = names})) << names;
  for (const char* const names : {"", "embed", "tokens", "model.embed", "lm_head|norm", "Embedding"})
    EXPECT_FALSE(matches({.names = names})) << names;
  const Parameter tied{.name = "embed_tokens", .shape = {10, 4}, .tied_as = "lm_head.weight"};
  for (const char* const names : {"embed_tokens", "lm_head.weight", "lm_head", "weight"})
    EXPECT_TRUE(TensorPattern{names}.matches("head", tied)) << names;
  EXPECT_TRUE(matches({.role = Role::table, .least = 40, .most = 40}));
  EXPECT_FALSE(matches({.role = Role::matrix}));
  EXPECT_FALSE(matches({.least = 41}));
  EXPECT_FALSE(matches({.most = 39}));
}

TEST(TensorPattern, TextAndBack) {
  for (const char* const text : {"*norm*", "a|b,role=vector", "*,role=table,least=5,most=4096"})
    EXPECT_EQ(TensorPattern::from(text, "--sharding-of ").text(), text);
  EXPECT_EQ(TensorPattern::from("role=vector", "").text(), "*,role=vector");
  for (const char* const text :
       {"a,b", "role=row", "least=-1", "most=", "size=4", "a,", "", "a|", "role=table,role=matrix", "least=1,least=2"})
    EXPECT_INPUT_ERROR(TensorPattern::from(text, "--sharding-of "), "--sharding-of '");
}

TEST(TensorPattern, ATensorMayMatchOnePattern) {
  const std::array<TensorPattern, 2> patterns{{{.names = "*norm*"}, {.names = "*", .most = 8}}};
  const auto index = [&](std::string name, std::int64_t elements) {
    return index_of(patterns, "block 0", {.name = std::move(name), .shape = {elements}}, "sharding: ");
  };
  EXPECT_EQ(index("norm", 16), 0u);
  EXPECT_EQ(index("bias", 8), 1u);
  EXPECT_EQ(index("bias", 16), 2u);
  EXPECT_INPUT_ERROR(index("norm", 8), "sharding: 'norm' of block 0 matches both '*norm*' and '*,most=8'");
}

}  // namespace
}  // namespace fsdp
