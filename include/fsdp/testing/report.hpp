// SPDX-License-Identifier: Apache-2.0
/// @file
/// The format in which a check of the kit reports a failure: the requirement, the case, and the result. And typed
/// GoogleTest suites whose tests are listed once, each with its name and its body.
///
/// Checks are function templates that report through `fail` and may be called individually; the suites only call them.
/// They may run on several threads at once, just as GoogleTest's assertions may.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <exception>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/has_member.hpp>
#include <tessera/fsdp/core/policy_text.hpp>

namespace fsdp::testing {

/// The case in which a requirement is checked: text, a rank of a communicator, or an object that describes itself.
struct Where {
  Where(const auto& given) {  // NOLINT(google-explicit-constructor): a check names its case by any of these
    if constexpr (requires { given.rank(); })
      words = message("rank ", given.rank(), " of ", given.size());
    else if constexpr (requires { given.in_words(); })
      words = given.in_words();
    else
      words = std::string_view(given);
  }
  std::string words;
};

/// Fails the running test with three lines that can be understood without the kit's source; `found` is joined. Returns
/// false. The expectations below return false on failure and true otherwise.
inline bool fail(std::string_view asked, const Where& where, const std::string& found) {
  ADD_FAILURE() << "asked: " << asked << "\n case: " << where.words << "\nfound: " << found;
  return false;
}
bool fail(std::string_view asked, const Where& where, const auto&... found) {
  return fail(asked, where, message(found...));
}

/// Thrown after a failure, to end a check.
struct Failed {};

/// Fails as `fail` does, and ends the check.
[[noreturn]] void stop(std::string_view asked, const Where& where, const auto&... found) {
  fail(asked, where, found...);
  throw Failed();
}

/// Returns a value as text, with enough digits to distinguish any two values.
template <class T>
std::string in_words(const T& value) {
  std::ostringstream text;
  if constexpr (std::is_same_v<T, double>)
    text << std::setprecision(17) << value;
  else if constexpr (std::is_integral_v<T>)
    text << +value;
  else
    text << std::setprecision(9) << static_cast<float>(value);
  return text.str();
}

template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Compares element by element and reports the first difference. `which` describes the elements.
bool expect_values(std::string_view asked, const Where& where, std::string_view which, const auto& found,
                   const auto& expected) {
  if (found.size() != expected.size())
    return fail(asked, where, which, ": ", found.size(), " elements instead of ", expected.size());
  std::size_t first = 0, different = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!same_bits(found[i], expected[i]) && different++ == 0) first = i;
  return different == 0 ||
         fail(asked, where, which, ": element ", first, " is ", in_words(found[first]), " instead of ",
              in_words(expected[first]), "; ", different, " of ", found.size(), " elements are wrong");
}

/// Compares with a run that sums in another order: values must agree within 1e-5 of the largest one.
inline bool expect_near(std::string_view asked, const Where& where, std::string_view which,
                        const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size())
    return fail(asked, where, which, ": ", found.size(), " elements instead of ", expected.size());
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= 1e-5f * largest))
      return fail(asked, where, which, ": element ", i, " is ", in_words(found[i]), " instead of about ",
                  in_words(expected[i]));
  return true;
}

/// Compares the losses of steps in the same way: they must agree within 1e-5 of the first loss.
inline bool expect_losses_near(std::string_view asked, const Where& where, const std::vector<double>& found,
                               const std::vector<double>& expected) {
  if (found.size() != expected.size()) return fail(asked, where, found.size(), " steps instead of ", expected.size());
  for (std::size_t step = 0; step < expected.size(); ++step)
    if (!(std::abs(found[step] - expected[step]) <= 1e-5 * std::abs(expected.front())))
      return fail(asked, where, "the loss of step ", step, " is ", in_words(found[step]), " instead of ",
                  in_words(expected[step]));
  return true;
}

template <class T>
bool expect_value(std::string_view asked, const Where& where, std::string_view which, const T& found,
                  const T& expected) {
  return found == expected || fail(asked, where, which, " is ", in_words(found), " instead of ", in_words(expected));
}

/// Checks that `call` throws an Error of type E, and returns the error's text. Otherwise fails and returns "".
template <class E>
std::string expect_error(std::string_view asked, const Where& where, std::string_view which, auto call) {
  try {
    call();
    fail(asked, where, which, ": no error was thrown");
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    fail(asked, where, which, ": an error of another type, which says \"", error.what(), "\"");
  }
  return "";
}

/// Runs a part of a check. Returns its result if it has one, or true. An error is a failure, whose message begins with
/// `ended`, and false is returned.
bool report_errors(std::string_view asked, const Where& where, auto part, std::string_view ended = "an error: ") {
  try {
    if constexpr (std::is_same_v<decltype(part()), bool>) return part();
    part();
    return true;
  } catch (const std::exception& error) {
    return fail(asked, where, ended, error.what());
  }
}

/// Calls check(value) for each value of a suite's parameter; `kind` is "policy", for example.
void each_value(std::string_view kind, const auto& values, auto check) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string text;
    if constexpr (requires { std::string_view(values[i].name()); })
      text = values[i].name();
    else
      text = policy_text(values[i]);
    const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                       message(kind, " ", i + 1, " of ", values.size(), ", ", text));
    check(values[i]);
  }
}

inline bool expect_part(std::string_view asked, const Where& where, std::string_view text, std::string_view part) {
  return text.find(part) != text.npos || fail(asked, where, "the error says \"", text, "\" and not \"", part, "\"");
}

/// FSDP_TESTED_VALUES(policies, policy, numbers, Policy) defines `policies_of<Tested>()`, which returns the values of a
/// suite's parameter: the values that its `policies()` lists, or a single default-constructed value. And
/// `Tested_policies`, the base of the suite, whose `each` calls check(policy) for each of them.
#define FSDP_TESTED_VALUES(values, kind, numbers, Kind)                                                         \
  FSDP_HAS_MEMBER(values)                                                                                       \
  template <class Tested>                                                                                       \
  auto values##_of() {                                                                                          \
    if constexpr (has_##values<Tested>()) {                                                                     \
      return Tested::values();                                                                                  \
    } else {                                                                                                    \
      static_assert(std::is_default_constructible_v<Tested>,                                                    \
                    "fsdp: this " #kind " has no default constructor, so the suite does not know its " #numbers \
                    "; give it a struct with `static std::vector<" #Kind "> " #values "()`");                   \
      return std::vector<Tested>{Tested{}};                                                                     \
    }                                                                                                           \
  }                                                                                                             \
  template <class Tested>                                                                                       \
  struct Tested_##values : ::testing::Test {                                                                    \
    using Kind = typename decltype(values##_of<Tested>())::value_type;                                          \
    static void each(void (*check)(const Kind&)) { each_value(#kind, values##_of<Tested>(), check); }           \
  };

}  // namespace fsdp::testing

/// FSDP_SUITE(ModuleSuite, (NamesItsParameters, check_module_parameters<TypeParam>()), ...) defines and registers the
/// tests of a class template, for INSTANTIATE_TYPED_TEST_SUITE_P. A suite may remain without instances, since its
/// checks can be called individually.
#define FSDP_SUITE(...) FSDP_SUITE_TESTS(__VA_ARGS__)
#define FSDP_SUITE_TESTS(suite, ...)                    \
  TYPED_TEST_SUITE_P(suite);                            \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite); \
  FSDP_EACH(FSDP_SUITE_TEST, suite, __VA_ARGS__)        \
  FSDP_SUITE_REGISTER(suite FSDP_EACH(FSDP_SUITE_NAME, suite, __VA_ARGS__))

#define FSDP_SUITE_TEST(suite, test) FSDP_SUITE_DEFINE(suite, FSDP_UNPACK test)
#define FSDP_SUITE_DEFINE(...) FSDP_SUITE_DEFINE_TEST(__VA_ARGS__)
#define FSDP_SUITE_DEFINE_TEST(suite, name, ...) \
  TYPED_TEST_P(suite, name) { __VA_ARGS__; }
#define FSDP_SUITE_NAME(suite, test) , FSDP_FIRST test
#define FSDP_SUITE_REGISTER(...) REGISTER_TYPED_TEST_SUITE_P(__VA_ARGS__)
#define FSDP_UNPACK(...) __VA_ARGS__
#define FSDP_FIRST(first, ...) first

/// FSDP_EACH(macro, given, a, b, ...) expands to macro(given, a) macro(given, b) ..., for at most 64 elements.
#define FSDP_EACH(macro, given, ...) __VA_OPT__(FSDP_EXPAND(FSDP_EACH_NEXT(macro, given, __VA_ARGS__)))
#define FSDP_EACH_NEXT(macro, given, first, ...) \
  macro(given, first) __VA_OPT__(FSDP_EACH_AGAIN FSDP_NOTHING(macro, given, __VA_ARGS__))
#define FSDP_EACH_AGAIN() FSDP_EACH_NEXT
#define FSDP_NOTHING ()
#define FSDP_EXPAND(...) FSDP_EXPAND_16(FSDP_EXPAND_16(FSDP_EXPAND_16(FSDP_EXPAND_16(__VA_ARGS__))))
#define FSDP_EXPAND_16(...) FSDP_EXPAND_4(FSDP_EXPAND_4(FSDP_EXPAND_4(FSDP_EXPAND_4(__VA_ARGS__))))
#define FSDP_EXPAND_4(...) FSDP_EXPAND_1(FSDP_EXPAND_1(FSDP_EXPAND_1(FSDP_EXPAND_1(__VA_ARGS__))))
#define FSDP_EXPAND_1(...) __VA_ARGS__
