// SPDX-License-Identifier: Apache-2.0
/// @file
/// The macros of GoogleTest that Cuda's tests use, for machines without it. Same names, plainer messages; a failed
/// ASSERT ends its function.
#pragma once

#include <cmath>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace testing::bare {

struct Case {
  std::string name;
  std::function<void()> body;
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline bool add(std::string name, std::function<void()> body) {
  cases().push_back({std::move(name), std::move(body)});
  return true;
}

inline int failures = 0;
inline std::string skipped;  ///< why the case that runs was skipped

/// Takes what is streamed behind a macro, and the macro's own text.
struct Report {
  std::ostringstream text;
  template <class T>
  Report& operator<<(const T& value) {
    text << value;
    return *this;
  }
};
struct Fail {
  void operator=(const Report& report) const {
    ++failures;
    std::cout << report.text.str() << "\n";
  }
};
struct Skip {
  void operator=(const Report& report) const { skipped = report.text.str(); }
};

}  // namespace testing::bare

#define FSDP_BARE_REPORT (::testing::bare::Report() << __FILE__ << ":" << __LINE__ << ": ")
#define FSDP_BARE_EXPECT(holds, words) \
  if (holds) {                         \
  } else                               \
    ::testing::bare::Fail() = FSDP_BARE_REPORT << words << " does not hold; "
#define FSDP_BARE_ASSERT(holds, words) \
  if (holds) {                         \
  } else                               \
    return ::testing::bare::Fail() = FSDP_BARE_REPORT << words << " does not hold; "

#define TEST(suite, name)                                                                            \
  static void suite##_##name();                                                                      \
  static const bool suite##_##name##_added = ::testing::bare::add(#suite "." #name, suite##_##name); \
  static void suite##_##name()
#define GTEST_SKIP() return ::testing::bare::Skip() = ::testing::bare::Report()
#define EXPECT_TRUE(a) FSDP_BARE_EXPECT(static_cast<bool>(a), #a)
#define EXPECT_EQ(a, b) FSDP_BARE_EXPECT((a) == (b), #a " == " #b)
#define EXPECT_LT(a, b) FSDP_BARE_EXPECT((a) < (b), #a " < " #b)
#define EXPECT_GT(a, b) FSDP_BARE_EXPECT((a) > (b), #a " > " #b)
#define EXPECT_NEAR(a, b, c) FSDP_BARE_EXPECT(std::abs((a) - (b)) <= (c), #a " near " #b)
#define ASSERT_EQ(a, b) FSDP_BARE_ASSERT((a) == (b), #a " == " #b)
#define EXPECT_THROW(statement, type) \
  FSDP_BARE_EXPECT(                   \
      [&] {                           \
        try {                         \
          statement;                  \
        } catch (const type&) {       \
          return true;                \
        }                             \
        return false;                 \
      }(),                            \
      #statement " throws " #type)
