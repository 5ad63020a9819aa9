// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the messages of expected errors.
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp::test {

/// Returns the message of the call's exception of type E; empty if it throws none. Other exceptions propagate.
template <class E = std::exception, class Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

/// The same for an InputError; the test fails if there is none.
template <class Call>
std::string input_error_of(Call&& call) {
  const std::string said = error_of<InputError>(call);
  if (said.empty()) ADD_FAILURE() << "no InputError was thrown";
  return said;
}

/// Expects that the text contains each part. A failure reports the location of the call.
inline void expect_parts(std::string_view text, std::initializer_list<std::string_view> parts,
                         const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  for (const std::string_view part : parts)
    if (text.find(part) == text.npos) ADD_FAILURE_AT(file, line) << "no '" << part << "' in: " << text;
}

/// Returns a callback that appends each warning to `texts`.
inline auto append_to(std::vector<std::string>& texts) {
  return [&texts](const std::string& text) { texts.push_back(text); };
}

/// Expects that `said`, the message of an InputError, contains the text; empty: none was thrown.
inline void expect_input_error(const std::string& said, std::string_view text, const char* file = __builtin_FILE(),
                               int line = __builtin_LINE()) {
  if (said.empty())
    ADD_FAILURE_AT(file, line) << "no InputError was thrown; expected '" << text << "'";
  else
    expect_parts(said, {text}, file, line);
}

}  // namespace fsdp::test

/// Expects that the call throws an InputError whose message contains the text. Without a lambda and its templates,
/// since tests have hundreds of these.
#define EXPECT_INPUT_ERROR(call, text)                           \
  do {                                                           \
    std::string said_by_input_error;                             \
    try {                                                        \
      (void)(call);                                              \
    } catch (const ::fsdp::InputError& input_error) {            \
      said_by_input_error = input_error.what();                  \
    }                                                            \
    ::fsdp::test::expect_input_error(said_by_input_error, text); \
  } while (false)
