// SPDX-License-Identifier: Apache-2.0
/// @file
/// Captures the failures that a check of the kit reports for a flawed specimen, instead of failing the running test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace fsdp::testing {

/// The messages of all assertions that fail while `call` runs, on any thread.
template <class Call>
std::vector<std::string> failures_of(Call call) {
  ::testing::TestPartResultArray results;
  {
    using Reporter = ::testing::ScopedFakeTestPartResultReporter;
    const Reporter reporter(Reporter::INTERCEPT_ALL_THREADS, &results);
    call();
  }
  std::vector<std::string> messages;
  for (int i = 0; i < results.size(); ++i) messages.emplace_back(results.GetTestPartResult(i).message());
  return messages;
}

/// The messages of `check` while the global `flaw`, by which a flawed specimen selects what it does wrong, has this
/// value.
template <class Flaw>
std::vector<std::string> failures_with(Flaw& flaw, Flaw value, void (*check)()) {
  struct Reset {
    Flaw& flaw;
    ~Reset() { flaw = Flaw(); }
  };
  const Reset reset{flaw};
  flaw = value;
  return failures_of(check);
}

/// Expects that one of the messages contains these parts: what was asked, on which case, and what was found.
inline void expect_sentence(const std::vector<std::string>& messages, std::string_view asked, std::string_view where,
                            std::string_view found) {
  std::string all;
  for (const std::string& text : messages) {
    const auto has = [&](std::string_view label, std::string_view part) {
      const std::size_t at = text.find(label);
      return at != text.npos && text.find(part, at) != text.npos;
    };
    if (has("asked: ", asked) && has(" case: ", where) && has("found: ", found)) return;
    all += text + "\n";
  }
  ADD_FAILURE() << "no failure says asked \"" << asked << "\", case \"" << where << "\", found \"" << found
                << "\", but:\n"
                << (all.empty() ? "nothing" : all);
}

/// Expects that `call` fails with such a message.
template <class Call>
void expect_failure(Call call, std::string_view asked, std::string_view where, std::string_view found) {
  expect_sentence(failures_of(call), asked, where, found);
}

}  // namespace fsdp::testing
