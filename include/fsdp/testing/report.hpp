// SPDX-License-Identifier: Apache-2.0
/// @file
/// The format in which a check of the kit reports a failure: the requirement, the case, and the result.
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

namespace fsdp::testing {

/// Fails the running test with three lines that can be understood without the kit's source. Returns false. The
/// expectations below return false on failure and true otherwise.
inline bool fail(std::string_view asked, std::string_view where, std::string_view found) {
  ADD_FAILURE() << "asked: " << asked << "\n case: " << where << "\nfound: " << found;
  return false;
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

/// Whether two values have the same bits.
template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Compares element by element and reports the first difference. `which` describes the elements.
template <class Found, class Expected>
bool expect_values(std::string_view asked, std::string_view where, std::string_view which, const Found& found,
                   const Expected& expected) {
  if (found.size() != expected.size())
    return fail(asked, where, message(which, ": ", found.size(), " elements instead of ", expected.size()));
  std::size_t first = 0;
  std::size_t different = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!same_bits(found[i], expected[i]) && different++ == 0) first = i;
  if (different == 0) return true;
  return fail(asked, where,
              message(which, ": element ", first, " is ", in_words(found[first]), " instead of ",
                      in_words(expected[first]), "; ", different, " of ", found.size(), " elements are wrong"));
}

/// Compares with a run that sums in another order: values must agree within 1e-5 of the largest one.
inline bool expect_near(std::string_view asked, std::string_view where, std::string_view which,
                        const std::vector<float>& found, const std::vector<float>& expected) {
  if (found.size() != expected.size())
    return fail(asked, where, message(which, ": ", found.size(), " elements instead of ", expected.size()));
  float largest = 0;
  for (const float value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= 1e-5f * largest))
      return fail(
          asked, where,
          message(which, ": element ", i, " is ", in_words(found[i]), " instead of about ", in_words(expected[i])));
  return true;
}

/// Compares the losses of steps in the same way: they must agree within 1e-5 of the first loss.
inline bool expect_losses_near(std::string_view asked, std::string_view where, const std::vector<double>& found,
                               const std::vector<double>& expected) {
  if (found.size() != expected.size())
    return fail(asked, where, message(found.size(), " steps instead of ", expected.size()));
  for (std::size_t step = 0; step < expected.size(); ++step)
    if (!(std::abs(found[step] - expected[step]) <= 1e-5 * std::abs(expected.front())))
      return fail(
          asked, where,
          message("the loss of step ", step, " is ", in_words(found[step]), " instead of ", in_words(expected[step])));
  return true;
}

/// Compares one value.
template <class T>
bool expect_value(std::string_view asked, std::string_view where, std::string_view which, const T& found,
                  const T& expected) {
  return found == expected ||
         fail(asked, where, message(which, " is ", in_words(found), " instead of ", in_words(expected)));
}

/// Checks that `call` throws an Error of type E, and returns the error's text. Otherwise fails and returns "".
template <class E, class Call>
std::string expect_error(std::string_view asked, std::string_view where, std::string_view which, Call call) {
  try {
    call();
    fail(asked, where, message(which, ": no error was thrown"));
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    fail(asked, where, message(which, ": an error of another type, which says \"", error.what(), "\""));
  }
  return "";
}

/// Runs a part of a check. Returns whether it ended without an error. An error is a failure, whose message begins with
/// `ended`. `where` is the case.
template <class Part>
bool report_errors(std::string_view asked, std::string_view where, Part part, std::string_view ended = "an error: ") {
  try {
    part();
    return true;
  } catch (const std::exception& error) {
    return fail(asked, where, message(ended, error.what()));
  }
}

/// FSDP_TESTED_VALUES(policies, policy, numbers, Policy) defines `policies_of<Tested>()`, which returns the values of a
/// suite's parameter: the values that its `policies()` lists, or a single default-constructed value.
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
  }

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// Checks that an error's text contains `part`.
inline bool expect_part(std::string_view asked, std::string_view where, std::string_view text, std::string_view part) {
  return contains(text, part) || fail(asked, where, message("the error says \"", text, "\" and not \"", part, "\""));
}

}  // namespace fsdp::testing
