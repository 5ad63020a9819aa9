// SPDX-License-Identifier: Apache-2.0
/// @file
/// How a check of the kit fails: what was asked, on which case, what was found.
///
/// Checks are function templates that report through `fail` and may be called one by one; the suites only call them.
/// They may run on several threads at once, as GoogleTest's own assertions may.
#pragma once

#include <cstddef>
#include <cstring>
#include <exception>
#include <iomanip>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

#include <fsdp/core/error.hpp>

namespace fsdp::testing {

/// Fails the running test. Three lines that can be read without the kit's source. Returns false, as what was asked for
/// does not hold; so do the expectations below, which return true where it holds.
inline bool fail(std::string_view asked, std::string_view where, std::string_view found) {
  ADD_FAILURE() << "asked: " << asked << "\n case: " << where << "\nfound: " << found;
  return false;
}

/// A number as it is, with all the digits that tell two values apart.
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

/// Equal to the bit: two sums that differ in their last digit are not the same.
template <class T>
bool same_bits(const T& a, const T& b) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Compares element by element and names the first that differs. `which` says what the elements are.
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

/// Compares one value.
template <class T>
bool expect_value(std::string_view asked, std::string_view where, std::string_view which, const T& found,
                  const T& expected) {
  return found == expected ||
         fail(asked, where, message(which, " is ", in_words(found), " instead of ", in_words(expected)));
}

/// Runs `call`, which must throw an Error of type E, and returns its text; fails and returns "" where it does not.
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

/// Runs part of a check and says whether it ended without an error, which is a failure. `where` is the case.
template <class Part>
bool report_errors(std::string_view asked, std::string_view where, Part part) {
  try {
    part();
    return true;
  } catch (const std::exception& error) {
    return fail(asked, where, message("an error: ", error.what()));
  }
}

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

/// An error's text must have this part.
inline bool expect_part(std::string_view asked, std::string_view where, std::string_view text, std::string_view part) {
  return contains(text, part) || fail(asked, where, message("the error says \"", text, "\" and not \"", part, "\""));
}

}  // namespace fsdp::testing
