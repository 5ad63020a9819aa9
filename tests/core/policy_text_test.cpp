// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/policy_text.hpp>

#include <gtest/gtest.h>

namespace fsdp {
namespace {

struct Nameless {};
struct Named {
  static constexpr std::string_view name = "named";
};
struct OfItsKind : Named {
  static std::string text() { return "kind"; }
};
struct WithNumbers : Named {
  int number = 3;
  std::string text() const { return "named:" + std::to_string(number); }
};
struct OfAView {
  static constexpr int name = 3;  // text() takes precedence
  static std::string_view text() { return "view"; }
};
template <class T, int n>
struct Outer {};

TEST(PolicyText, FallsBackFromTextToNameToType) {
  WithNumbers four;
  four.number = 4;
  EXPECT_EQ(policy_text(four), "named:4");
  EXPECT_EQ(policy_text(OfItsKind{}), "kind");
  EXPECT_EQ(policy_text(Named{}), "named");
  EXPECT_EQ(policy_text(Nameless{}), type_name<Nameless>());
  EXPECT_EQ(policy_text(OfAView{}), "view");
}

TEST(PolicyText, OfATypeWithoutAnObjectHasNoNumbers) {
  EXPECT_EQ(policy_text<WithNumbers>(), "named");
  EXPECT_EQ(policy_text<OfItsKind>(), "kind");
  EXPECT_EQ(policy_text<Named>(), "named");
}

TEST(TypeName, IsTheNameInTheSource) {
  EXPECT_EQ(type_name<int>(), "int");
  EXPECT_NE(type_name<Nameless>().find("Nameless"), std::string_view::npos);
  EXPECT_EQ(type_name<Nameless>().find('='), std::string_view::npos);
  const std::string nested(type_name<Outer<Outer<int, 1>, 2>>());
  EXPECT_NE(nested.find("Outer<"), std::string::npos);
  EXPECT_EQ(nested.substr(nested.size() - 4), ", 2>");
}

}  // namespace
}  // namespace fsdp
