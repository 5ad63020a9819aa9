// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/terminal_text.hpp>

#include <string>

#include <gtest/gtest.h>

namespace fsdp {
namespace {

TEST(Printable, KeepsTextOfAnyLanguageAndLineBreaks) {
  for (const char* text : {"", "a b~", "line\n\ttab", "Grüße", "日本語 עברית العربية", "👩‍💻", "C:\\x1b"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesTerminalControlCharacters) {
  EXPECT_EQ(printable("\x1b[31mRED\x07\r\b\x7f"), "\\x1b[31mRED\\x07\\x0d\\x08\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u0085\u009b31m"), "\\u0085\\u009b31m");  // C1: a terminal's CSI in one character
}

TEST(Printable, EscapesBidirectionalAndInvisibleCharacters) {
  EXPECT_EQ(printable("\u202Egpj.exe\u202C \u2066x\u2069 \u200E\u200F\u061C"),
            "\\u202egpj.exe\\u202c \\u2066x\\u2069 \\u200e\\u200f\\u061c");
  EXPECT_EQ(printable("pay\u200Bpal \u00ADx\u2060\u2064\uFEFFy\U000E0041"),
            "pay\\u200bpal \\u00adx\\u2060\\u2064\\ufeffy\\U000e0041");
  EXPECT_EQ(printable("a\u2028b\u2029\uFEFF"), "a\\u2028b\\u2029\\ufeff");
}

TEST(Printable, EscapesInvalidUtf8) {
  EXPECT_EQ(printable("a\xff\x9b\xc3(\xe2\x82"), "a\\xff\\x9b\\xc3(\\xe2\\x82");
  EXPECT_EQ(printable("\xed\xa0\x80\xc0\xaf"),
            "\\xed\\xa0\\x80\\xc0\\xaf");  // a surrogate, and an overlong encoding of '/'
}

TEST(Shortened, IsOneLineTruncatedBetweenCharacters) {
  EXPECT_EQ(shortened("a\nb\t\x1b"), "a\\nb\\t\\x1b");
  EXPECT_EQ(shortened("abcdef", 6), "abcdef");
  EXPECT_EQ(shortened("abcdef", 5), "abcde... (6 bytes)");
  EXPECT_EQ(shortened("ab日本", 4), "ab... (8 bytes)");
  EXPECT_EQ(shortened("ab日本", 5), "ab日... (8 bytes)");
  EXPECT_EQ(shortened("\x80\x80\x80\x80\x80\x80", 5), "\\x80\\x80\\x80\\x80\\x80... (6 bytes)");
  std::string begin(100, 'x');
  EXPECT_EQ(shortened(std::string(1'000'000, 'x')), begin.append("... (1000000 bytes)"));
}

TEST(Sentence, KeepsTheBeginAndEndOfAVeryLongMessage) {
  const std::string path = "/" + std::string(4095, 'p');
  EXPECT_EQ(sentence(path + "\n: no such file"), path + "\\n: no such file") << "one line";
  std::string mixed = "FILE: ";
  for (int i = 0; i < 10000; ++i) mixed += "日";
  const std::string text = sentence(mixed + "; mend it");
  EXPECT_LT(text.size(), most_sentence_bytes + 100);
  EXPECT_TRUE(text.starts_with("FILE: 日") && text.ends_with("日; mend it")) << text;
  EXPECT_NE(text.find("日 ... (30015 bytes) ... 日"), std::string::npos);
  EXPECT_EQ(text.find('\\'), std::string::npos) << "a character was cut";
}

TEST(ShortenedPart, ShortensStringsButNotLiteralsAndNumbers) {
  EXPECT_STREQ(shortened_part("literal\n"), "literal\n");
  EXPECT_EQ(shortened_part(7), 7);
  EXPECT_EQ(shortened_part(std::string("\n")), "\\n");
  EXPECT_EQ(shortened_part(std::string_view("\n")), "\\n");
}

}  // namespace
}  // namespace fsdp
