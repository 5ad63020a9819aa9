// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/data/windows.hpp>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "support/problems.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::data {
namespace {

const std::filesystem::path tokenizer = TESSERA_TEST_DATA "/text/tokenizers/smollm.json";

std::string words(std::mt19937_64& random, int most) {
  std::string text;
  for (auto count = 1 + random() % static_cast<std::uint64_t>(most); count > 0; --count)
    text += std::string(text.empty() ? "" : " ") + "w" + std::to_string(random() % 100);
  return text;
}

std::string row(const std::string& question, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + question + R"("}, {"role": "assistant", "content": ")" +
         answer + "\"}]}\n";
}

struct Chats : test::TemporaryFolder {
  explicit Chats(const std::string& text) : texts(std::vector{write("chats.jsonl", text)}, tokenizer, "chatml") {
    texts.write(file);
  }
  ConversationTexts texts;
  std::filesystem::path file = path() / "made";
};

/// Returns `count` conversations with 1 to `most` words per turn.
std::string some_chats(int count, int most) {
  std::mt19937_64 random(3);
  std::string text;
  for (int i = 0; i < count; ++i) text += row(words(random, most), words(random, most)) + (i % 7 == 0 ? "\n" : "");
  return text;
}

using Pairs = std::multimap<std::vector<std::int32_t>, std::vector<std::int32_t>>;  // inputs and targets

TEST(PackedConversations, EachConversationIsOneDocumentWithinOneWindow) {
  const Chats chats(some_chats(300, 20));
  const Conversations all(chats.file);
  ASSERT_EQ(all.size(), 300);
  Pairs expected;
  for (std::int64_t i = 0; i < all.size(); ++i) {
    std::vector<std::int32_t> tokens;
    all.append(i, tokens);
    std::vector<std::int32_t> inputs(tokens.begin(), tokens.end() - 1), targets(tokens.begin() + 1, tokens.end());
    for (std::int32_t& input : inputs) input = input < 0 ? ~input : input;
    for (std::int32_t& target : targets) target = std::max(target, -1);
    expected.emplace(inputs, targets);
  }
  const PackedConversations packed(chats.file,
                                   {.sequence_length = 512, .validation_fraction = 0.1, .vocabulary = 2000});
  EXPECT_GE(packed.validation(), 1);
  Pairs found;
  for (std::int64_t window = 0; window < packed.training() + packed.validation(); ++window) {
    std::vector<std::int32_t> tokens(512), targets(512);
    std::vector<std::int64_t> documents(1, 1024);  // as if other windows came before
    packed.fill(window, tokens.data(), targets.data(), documents);
    EXPECT_EQ(documents.back(), 1024 + 512);
    for (std::size_t d = 0; d + 1 < documents.size(); ++d) {
      const auto begin = documents[d] - 1024, end = documents[d + 1] - 1024;
      ASSERT_LT(begin, end);
      const std::vector<std::int32_t> part(targets.begin() + begin, targets.begin() + end);
      if (std::ranges::all_of(part, [](std::int32_t t) { return t == -1; })) continue;  // padding of the window
      found.emplace(std::vector<std::int32_t>(tokens.begin() + begin, tokens.begin() + end), part);
    }
  }
  EXPECT_EQ(found, expected);
}

TEST(PackedConversations, WindowsAreNearlyFull) {
  const Chats chats(some_chats(2000, 30));
  const PackedConversations packed(chats.file, {.sequence_length = 1024, .vocabulary = 2000});
  const std::string text = packed.text();
  const std::size_t at = text.rfind("windows, ") + 9;
  EXPECT_GE(std::stoi(text.substr(at)), 97) << text;
}

TEST(PackedConversations, LongConversationsAreErrorsDroppedOrCutAsConfigured) {
  std::string long_answer;
  for (int i = 0; i < 200; ++i) long_answer += "word ";
  const Chats chats(row("a", "b") + row("c", long_answer) + row(long_answer, "d"));
  const auto packed = [&](OnLong on_long) {
    return PackedConversations(chats.file, {.sequence_length = 64, .vocabulary = 2000, .on_long = on_long});
  };
  EXPECT_INPUT_ERROR(packed(OnLong::error), "chats.jsonl line 2: is ");
  test::expect_parts(packed(OnLong::drop).text(), {"3 conversations (2 of them too long and left out) in 1 windows"});
  test::expect_parts(packed(OnLong::cut).text(), {"(1 of them too long and left out) (1 of them cut) in 2 windows"});
  EXPECT_INPUT_ERROR(
      PackedConversations(chats.file, {.sequence_length = 4, .vocabulary = 2000, .on_long = OnLong::drop}),
      "none of 3 conversations fits into 4 tokens");
}

TEST(PackedConversations, ReportsTokensOutsideTheVocabulary) {
  const Chats chats(row("a", "b"));
  const PackedConversations packed(chats.file, {.sequence_length = 64, .vocabulary = 10});
  std::vector<std::int32_t> tokens(64), targets(64);
  std::vector<std::int64_t> documents(1);
  EXPECT_INPUT_ERROR(packed.fill(0, tokens.data(), targets.data(), documents), "chats.jsonl line 1: holds token ");
}

TEST(Conversations, LoneSurrogateEscapesBecomeReplacementCharactersAndCount) {
  const std::string good = some_chats(40, 20);
  const auto tokens = [](const std::string& text) {
    const Chats chats(text);
    const Conversations all(chats.file);
    std::vector<std::int32_t> last;
    all.append(all.size() - 1, last);
    return std::pair(last, all.replaced_bytes());
  };
  const auto whole = tokens(good + row("why?", "so \uFFFD."));
  EXPECT_EQ(whole.second, 0);
  EXPECT_EQ(tokens(good + row("why?", "so \\udcb2.")), std::pair(whole.first, std::int64_t{1}));
  EXPECT_EQ(tokens(good + row("why?", "so \xff.")), std::pair(whole.first, std::int64_t{1}));
  EXPECT_INPUT_ERROR(Chats(row("why?", "\\udcb2\\udcb2.")), "are not Unicode text");
  const Chats chats(good + row("why?", "\\udcb2"));
  test::expect_parts(PackedConversations(chats.file, {.sequence_length = 512, .vocabulary = 2000}).text(),
                     {" filled, 1 bytes that are not Unicode text were read as U+FFFD"});
}

TEST(Conversations, ErrorsReportFileAndLine) {
  EXPECT_INPUT_ERROR(Chats(row("a", "b") + "\n{\"messages\": 1}\n"), "chats.jsonl line 3: \"messages\" is not a list");
  EXPECT_INPUT_ERROR(Chats("\n\n"), "there is no conversation");
  const test::TemporaryFolder folder;
  EXPECT_INPUT_ERROR(ConversationTexts(std::vector{folder.write("a.txt", "x")}, tokenizer, "chatml"), "is no JSONL");
}

TEST(Conversations, NotesCountOmittedPartsAndUnreadKeys) {
  const test::TemporaryFolder folder;
  std::string text = row("a", " ");
  for (int i = 0; i < 1200; ++i) text += R"({"source": "s", "id": null, )" + row("a", "b").substr(1);
  text += R"({"id": 1, "messages": [{"role": "user", "content": "a"}, )"
          R"({"role": "assistant", "content": "<think>why</think>b", "name": "n"}]})"
          "\n" +
          row("c", "d") + row("c", "d");
  const std::string jinja =
      folder
          .write("t.jinja",
                 "{% for m in messages %}{{ m.content.split('</think>')[-1] if m.content != 'c' }};"
                 "{% endfor %}")
          .string();
  const std::filesystem::path chats = folder.write("chats.jsonl", text), made = folder.path() / "made";
  ConversationTexts(std::vector{chats}, tokenizer, jinja).write(made);
  EXPECT_EQ(
      Conversations(made).notes(),
      (std::vector<std::string>{"warning: a part is absent from the text of 2 of 1,204 conversations; the first: " +
                                    chats.string() + " line 1203: " + jinja + " does not write the text of message 1",
                                jinja + " does not write the reasoning of 1 answer",
                                "warning: 1 answer that is learned is empty; the first: " + chats.string() + " line 1",
                                "not read: id in 1 record, messages.name in 1 record, source in 1,200 records"}));
}

TEST(Conversations, ADamagedFileIsRefused) {
  const Chats chats(some_chats(20, 5));
  const std::uintmax_t size = std::filesystem::file_size(chats.file);
  for (const std::uintmax_t bytes : {size - 1, size / 2, std::uintmax_t{8}, std::uintmax_t{0}}) {
    std::filesystem::resize_file(chats.file, bytes);
    EXPECT_INPUT_ERROR(Conversations{chats.file}, "is not what was written; delete it");
  }
}

}  // namespace
}  // namespace fsdp::data
