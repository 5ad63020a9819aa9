// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks of the messages of expected errors.
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>

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

}  // namespace fsdp::test

/// Expects that the call throws an InputError whose message contains the text.
#define EXPECT_INPUT_ERROR(call, text)                                            \
  do {                                                                            \
    const std::string said = ::fsdp::test::input_error_of([&] { (void)(call); }); \
    EXPECT_NE(said.find(text), std::string::npos) << said;                        \
  } while (false)
