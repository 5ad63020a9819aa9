// SPDX-License-Identifier: Apache-2.0
/// @file
/// The GoogleTest macros that Cuda's tests use, for machines without GoogleTest. The names are the same, the messages
/// simpler. A failed ASSERT returns from its function.
#pragma once

#include <cmath>
#include <functional>
#include <iostream>
#include <iterator>
#include <mutex>
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
inline std::string skipped;  ///< reason for which the running case was skipped
inline std::mutex printing;  ///< guards output and counters: ranks are threads, each of which may fail
inline thread_local std::vector<std::string> traces;

/// Writes a value to a report: the value, up to four elements of a list, or a note that it cannot be shown.
template <class T>
void show(std::ostream& out, const T& value) {
  if constexpr (requires { out << value; }) {
    out << value;
  } else if constexpr (requires { out << *std::begin(value); }) {
    int shown = 0;
    out << "{";
    for (const auto& one : value) {
      if (++shown > 4) break;
      out << " " << one;
    }
    out << (shown > 4 ? " ... }" : " }");
  } else {
    out << "(not shown)";
  }
}

/// Returns a description of a failed comparison; empty if it holds.
template <class A, class B, class Holds>
std::string wrong(const char* words, const A& a, const B& b, Holds holds) {
  if (holds(a, b)) return {};
  std::ostringstream text;
  text << words << " does not hold: ";
  show(text, a);
  text << ", ";
  show(text, b);
  return text.str();
}
inline std::string wrong(const char* words, bool holds) {
  return holds ? std::string() : std::string(words) + " does not hold";
}

/// A line that is added to failures of this thread until its scope ends.
struct Trace {
  explicit Trace(auto&& words) {
    std::ostringstream text;
    text << words;
    traces.push_back(text.str());
  }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
  ~Trace() { traces.pop_back(); }
};

/// Collects the text that is streamed into a macro after the macro's own text.
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
    const std::lock_guard lock(printing);
    ++failures;
    std::cout << report.text.str() << "\n";
    for (const std::string& trace : traces) std::cout << "  in " << trace << "\n";
  }
};
struct Skip {
  void operator=(const Report& report) const { skipped = report.text.str(); }
};

}  // namespace testing::bare

namespace testing {

/// A line that is added to failures, with its source location.
struct ScopedTrace : bare::Trace {
  ScopedTrace(const char* file, int line, const std::string& words)
      : bare::Trace(std::string(file) + ":" + std::to_string(line) + ": " + words) {}
};

}  // namespace testing

#define FSDP_BARE_REPORT (::testing::bare::Report() << __FILE__ << ":" << __LINE__ << ": ")
#define FSDP_BARE_EXPECT(...)                                                                     \
  if (const std::string found_wrong = ::testing::bare::wrong(__VA_ARGS__); found_wrong.empty()) { \
  } else                                                                                          \
    ::testing::bare::Fail() = FSDP_BARE_REPORT << found_wrong << "; "
#define FSDP_BARE_ASSERT(...)                                                                     \
  if (const std::string found_wrong = ::testing::bare::wrong(__VA_ARGS__); found_wrong.empty()) { \
  } else                                                                                          \
    return ::testing::bare::Fail() = FSDP_BARE_REPORT << found_wrong << "; "
#define FSDP_BARE_COMPARE(a, b, op) #a " " #op " " #b, (a), (b), [](const auto& x, const auto& y) { return x op y; }
#define FSDP_BARE_TRACE_AT(line) trace_of_line_##line
#define FSDP_BARE_TRACE(line) FSDP_BARE_TRACE_AT(line)

#define TEST(suite, name)                                                                            \
  static void suite##_##name();                                                                      \
  static const bool suite##_##name##_added = ::testing::bare::add(#suite "." #name, suite##_##name); \
  static void suite##_##name()
#define GTEST_SKIP() return ::testing::bare::Skip() = ::testing::bare::Report()
#define SCOPED_TRACE(words) const ::testing::bare::Trace FSDP_BARE_TRACE(__LINE__)(words)
#define ADD_FAILURE() ::testing::bare::Fail() = FSDP_BARE_REPORT
#define ADD_FAILURE_AT(file, line) \
  ::testing::bare::Fail() = (::testing::bare::Report() << (file) << ":" << (line) << ": ")
#define EXPECT_TRUE(a) FSDP_BARE_EXPECT(#a, static_cast<bool>(a))
#define EXPECT_EQ(a, b) FSDP_BARE_EXPECT(FSDP_BARE_COMPARE(a, b, ==))
#define EXPECT_NE(a, b) FSDP_BARE_EXPECT(FSDP_BARE_COMPARE(a, b, !=))
#define EXPECT_LT(a, b) FSDP_BARE_EXPECT(FSDP_BARE_COMPARE(a, b, <))
#define EXPECT_LE(a, b) FSDP_BARE_EXPECT(FSDP_BARE_COMPARE(a, b, <=))
#define EXPECT_GT(a, b) FSDP_BARE_EXPECT(FSDP_BARE_COMPARE(a, b, >))
#define EXPECT_NEAR(a, b, c) \
  FSDP_BARE_EXPECT(#a " near " #b, (a), (b), [&](const auto& x, const auto& y) { return std::abs(x - y) <= (c); })
#define ASSERT_TRUE(a) FSDP_BARE_ASSERT(#a, static_cast<bool>(a))
#define ASSERT_EQ(a, b) FSDP_BARE_ASSERT(FSDP_BARE_COMPARE(a, b, ==))
#define EXPECT_THROW(statement, type)                 \
  FSDP_BARE_EXPECT(#statement " throws " #type, [&] { \
    try {                                             \
      statement;                                      \
    } catch (const type&) {                           \
      return true;                                    \
    }                                                 \
    return false;                                     \
  }())
