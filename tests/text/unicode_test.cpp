// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include <support/sanitizer.hpp>

#include "src/text/patterns/regular_expression.hpp"
#include "src/text/unicode/code_points.hpp"
#include "text/hashes.hpp"

namespace fsdp::text {
namespace {

std::string every_code_point() {
  std::string text;
  for (char32_t code = 0; code < code_point_end; ++code)
    if (code < 0xD800 || code >= 0xE000) append_utf8(text, code);
  return text;
}

std::uint32_t hash_of_matches(const std::string& pattern, const std::string& text) {
  std::vector<Match> matches;
  const Budget::Task task = {.name = "test", .advice = "test"};
  Budget budget(task, text.size(), {.base = 0, .per_byte = 100});
  RegularExpression("(?:" + pattern + ")+", "test").find_all(text, matches, budget);
  std::string matched;
  for (const Match& match : matches) matched += text.substr(match.begin, match.end - match.begin);
  return test::hash_of(matched);
}

std::uint32_t hash_of_form(UnicodeForm form, const std::string& text) {
  std::string forms;
  for (std::size_t at = 0; at < text.size(); at += utf8_length(static_cast<unsigned char>(text[at])))
    append_normalized(forms, text.substr(at, utf8_length(static_cast<unsigned char>(text[at]))), form);
  return test::hash_of(forms);
}

TEST(Unicode, MatchesTheTokenizersPackageForEveryCodePoint) {
  const std::string all = every_code_point();
  std::ifstream file(TESSERA_TEST_DATA "/text/unicode.hashes");
  int count = 0;
  for (std::string name, hash; file >> name >> hash; ++count) {
    if (test::sanitized && count >= 4 && count % 10 != 0) continue;  // all forms, a sample of the categories
    const std::uint32_t found = name == "NFC"    ? hash_of_form(UnicodeForm::nfc, all)
                                : name == "NFD"  ? hash_of_form(UnicodeForm::nfd, all)
                                : name == "NFKC" ? hash_of_form(UnicodeForm::nfkc, all)
                                : name == "NFKD" ? hash_of_form(UnicodeForm::nfkd, all)
                                                 : hash_of_matches(name, all);
    EXPECT_EQ(found, std::stoul(hash, nullptr, 16)) << name;
  }
  EXPECT_EQ(count, 60);
}

std::string form(std::string_view text, UnicodeForm form) {
  std::string out;
  append_normalized(out, text, form);
  return out;
}

TEST(Unicode, CombiningMarksAreOrderedAndComposed) {
  EXPECT_EQ(form("e\u0301", UnicodeForm::nfc), "\u00e9");
  EXPECT_EQ(form("xe\u0323\u0302y", UnicodeForm::nfc), "x\u1ec7y");
  EXPECT_EQ(form("e\u0302\u0323", UnicodeForm::nfc), "\u1ec7");
  EXPECT_EQ(form("e\u0302\u0323", UnicodeForm::nfd), "e\u0323\u0302");
  EXPECT_EQ(form("\u1100\u1161\u11a8", UnicodeForm::nfc), "\uac01");
  EXPECT_EQ(form("\uac01", UnicodeForm::nfd), "\u1100\u1161\u11a8");
  EXPECT_EQ(form("\ufb01\u00bd", UnicodeForm::nfkc), "fi1\u20442");
}

TEST(Unicode, ManyCombiningMarksAreNormalizedInReasonableTime) {
  std::string marks = "a";
  for (int i = 0; i < 200000; ++i) marks += "\u0301\u0323";
  const std::string ordered = form(marks, UnicodeForm::nfd);
  EXPECT_EQ(ordered.size(), marks.size());
  EXPECT_EQ(ordered.substr(1, 2), "\u0323");
}

TEST(Utf8, ErrorsAreReplacedAsInPython) {
  const auto replaced = [](std::string_view text) {
    std::string out;
    append_replacing(out, text);
    return out;
  };
  const std::string bad = "\uFFFD";
  EXPECT_EQ(replaced("a\x80z"), "a" + bad + "z");
  EXPECT_EQ(replaced("\xE4\xB8z"), bad + "z");           // an incomplete character becomes one replacement
  EXPECT_EQ(replaced("\xED\xA0\x80"), bad + bad + bad);  // a surrogate becomes three
  EXPECT_EQ(replaced("\xC0\xAF"), bad + bad);
  EXPECT_EQ(replaced("\xF0\x9F\x98"), bad);
  EXPECT_EQ(replaced("\xF4\x90\x80\x80"), bad + bad + bad + bad);
  EXPECT_EQ(replaced("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

}  // namespace
}  // namespace fsdp::text
