// SPDX-License-Identifier: Apache-2.0
#include "src/text/patterns/regular_expression.hpp"

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::text {
namespace {

/// All matches in a text, with a limit of 100 steps per byte.
std::vector<Match> matches_of(const std::string& pattern, const std::string& text) {
  const Budget::Task task = {.name = "a.json: encoding a text", .advice = "do it"};
  std::vector<Match> matches;
  Budget budget(task, text.size(), {.base = 1000, .per_byte = 100});
  RegularExpression(pattern, "a.json").find_all(text, matches, budget);
  return matches;
}

/// All matches of a pattern in a text, separated by "|".
std::string found(const std::string& pattern, const std::string& text) {
  const std::vector<Match> matches = matches_of(pattern, text);
  std::string all;
  for (const Match& match : matches)
    all += (all.empty() ? "" : "|") + text.substr(match.begin, match.end - match.begin);
  return all;
}

TEST(RegularExpression, MatchesNonAsciiCharactersByUnicodeProperty) {
  EXPECT_EQ(found(R"(\p{L}+)", "na\u00efve 42 \u65e5\u672c"), "na\u00efve|\u65e5\u672c");
  EXPECT_EQ(found(R"(\p{N}{1,3})", "12345\u0663"), "123|45\u0663");
  EXPECT_EQ(found(R"([^\s\p{L}]+)", "a\u3000b!?\u00a0"), "!?");
  EXPECT_EQ(found(R"([\p{Lo}&&[^\p{Han}]]+)", "\u65e5\u3042\u3044"), "\u3042\u3044");
  EXPECT_EQ(found("[\u4e00-\u9fa5]+", "x\u4e2d\u6587y"), "\u4e2d\u6587");
}

TEST(RegularExpression, SupportsLookaroundAssertions) {
  EXPECT_EQ(found(R"(\s+(?!\S)| ?\S+)", "a   b  "), "a|  | b|  ");
  EXPECT_EQ(found(R"((?<=a)b)", "bab"), "b");
}

TEST(RegularExpression, IgnoresCaseByUnicodeCaseFolding) {
  EXPECT_EQ(found("(?i:'s|'ll)", "'S 'Ll '\u017f 's"), "'S|'Ll|'\u017f|'s");
}

TEST(RegularExpression, PossessiveQuantifiersDoNotBacktrack) {
  EXPECT_EQ(found("a++b", "aaab"), "aaab");
  EXPECT_EQ(found("a++ab", "aaab"), "");
  EXPECT_EQ(found("e{0,2}(?:p)?+e", "xe"), "e");  // PCRE2 10.42 misses this by default
}

TEST(RegularExpression, AnEmptyMatchDoesNotFollowAMatch) {
  const std::vector<Match> matches = matches_of("a*", "baac");
  ASSERT_EQ(matches.size(), 3u);
  EXPECT_EQ(matches[0].end, 0u);
  EXPECT_EQ(matches[1].end, 3u);
  EXPECT_EQ(matches[2].begin, 4u);
}

TEST(RegularExpression, RefusesUnsupportedSyntaxWithAClearError) {
  const auto read = [](const std::string& pattern) { return RegularExpression(pattern, "a.json"); };
  EXPECT_INPUT_ERROR(read("^a"), "a.json: the regular expression \"^a\" has an anchor");
  EXPECT_INPUT_ERROR(read(R"(\bx)"), "has \\b; of letters and digits there are \\s \\w");
  EXPECT_INPUT_ERROR(read(R"((a)\1)"), "has \\1");
  EXPECT_INPUT_ERROR(read(R"(\p{Emoji})"), "asks for \\p{Emoji}; there are general categories");
  EXPECT_INPUT_ERROR(read("[[:alpha:]]"), "write \\p{...}");
  EXPECT_INPUT_ERROR(read("(?m:a)"), "a group of a kind that is not supported");
  EXPECT_INPUT_ERROR(read("(a"), "has ( without )");
  EXPECT_INPUT_ERROR(read("a)"), "has ) without (");
  EXPECT_INPUT_ERROR(read("[a"), "has [ without ]");
  EXPECT_INPUT_ERROR(read("a**"), "one quantifier behind another");
  EXPECT_INPUT_ERROR(read("*a"), "a quantifier behind nothing");
  EXPECT_INPUT_ERROR(read("a{2000}"), "repeats more than 1000 times");
  EXPECT_INPUT_ERROR(read("a{x}"), "write \\{ for the character");
  EXPECT_INPUT_ERROR(read("(?:a?)*"), "repeats what can match nothing");
  EXPECT_INPUT_ERROR(read("(?i:ss)"), "ignores the case of ff, fi, fl, ss or st");
  EXPECT_INPUT_ERROR(read("(?i:\u00e9)"), "more than ASCII where case is ignored");
  EXPECT_INPUT_ERROR(read("(?<=a+)b"), "is refused by PCRE2: ");
  EXPECT_INPUT_ERROR(read(std::string(60, '(') + std::string(60, ')')), "groups nested too deep");
  EXPECT_INPUT_ERROR(read(std::string(9000, '[')), "sets nested too deep");
  EXPECT_INPUT_ERROR(read(std::string(20000, 'a')), "at most 10000 are read");
  std::string many;
  for (int i = 0; i < 130; ++i)
    many += "[\\u01" + std::string(1, "0123456789abcdef"[i / 16 % 16]) + "0123456789abcdef"[i % 16] + "]|";
  EXPECT_INPUT_ERROR(read(many + "x"), "tells more than 128 kinds of characters apart");
}

TEST(RegularExpression, TheStepLimitGrowsWithTheText) {
  const auto refused = [](const std::string& pattern, const std::string& text) {
    SCOPED_TRACE(pattern);
    EXPECT_INPUT_ERROR(matches_of(pattern, text),
                       message("a.json: encoding a text takes more than ", 1000 + 100 * text.size(), " steps for ",
                               text.size(), " bytes; do it"));
  };
  refused("(?:a|ab?|b?a)+[cd]", std::string(60, 'a'));
  refused(R"((?:[a-z ]|[a-z ]){1,20}\x00|.)", std::string(2000, 'a'));  // only the sum of all matches exceeds the limit
  refused(R"([a-z]*[\x00\x01]|.)", std::string(20000, 'a'));            // scans ahead repeatedly
  refused(R"([a-z]*+[\x00\x01]|.)", std::string(20000, 'a'));
  refused(R"((?>(?:ab|a)*)[01])", std::string(20000, 'a'));
  refused(R"((?=[a-z]*[01])x|.)", std::string(20000, 'a'));
  refused(R"((?!(?:[a-z]|[a-z]){30}[01])[a-z])", std::string(200, 'a'));
  std::string alternatives;
  for (int i = 0; i < 30; ++i) alternatives += "(?:a|[a\x01])";
  refused(alternatives + "[01]", std::string(200, 'a'));
}

TEST(RegularExpression, MatchesAcrossTheBordersOfItsDecodingWindow) {
  for (const std::size_t n : {1, 127, 128, 129, 254, 255, 256, 257, 258, 511, 512, 513, 5000}) {
    for (const std::string letter : {"x", "\u00e9"}) {
      SCOPED_TRACE(message(n, " ", letter));
      std::string word, gap(n, ' ');
      for (std::size_t i = 0; i < n; ++i) word += letter;
      EXPECT_EQ(found(R"( ?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)", gap + " " + word), gap + "| " + word);
      EXPECT_EQ(found(R"( ?\p{L}+|\s*[\r\n]+|\s+(?!\S)|\s+)", word + gap + "\n"), word + "|" + gap + "\n");
      EXPECT_EQ(found("[0-9]+", word + "12"), "12");
      EXPECT_EQ(found("(?<=1)2", word + "12" + word), "2");
      EXPECT_EQ(found("(?:" + letter + ")+(?=1)", word + "12"), word);
      EXPECT_EQ(found("(?:" + letter + ")+?(?=1)|[2]", word + "12"), word + "|2");
      EXPECT_EQ(found("(?!1).", word + "1").size(), word.size() + n - 1);
    }
  }
}

TEST(RegularExpression, ParsingTimeIsLinearInTheNumberOfSets) {
  std::string dots;
  for (int i = 0; i < 1500; ++i) dots += '.';  // each set contains almost all characters
  EXPECT_EQ(found(dots, std::string(20, 'a')), "");
}

}  // namespace
}  // namespace fsdp::text
