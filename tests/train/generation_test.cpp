// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/generation.hpp>

#include <gtest/gtest.h>

#include <range/v3/view/zip.hpp>

#include <filesystem>
#include <string>
#include <vector>

#include <tessera/trainer/flags/flags.hpp>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

using Ids = std::vector<std::int32_t>;

GenerateOptions of_ids(std::vector<std::string> prompts, std::int64_t tokens) {
  return {.prompt_ids = std::move(prompts), .tokens = tokens, .sampling = {.temperature = 0}};
}

TEST(ParseIds, ReadsIntegersSeparatedByCommas) {
  EXPECT_EQ(parse_ids("stop-ids", "7"), Ids{7});
  EXPECT_EQ(parse_ids("stop-ids", "1,20,0"), (Ids{1, 20, 0}));
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "1, 2", "1;2", "-1", "a", "1.5", "2147483648"})
    EXPECT_INPUT_ERROR(parse_ids("stop-ids", text), "--stop-ids '" + std::string(text) + "' is no list of token ids");
}

TEST(Generation, PadsPromptsOfDifferentLengthsAtTheEnd) {
  Generation generation(of_ids({"5,6,7", "8"}, 2), 10);
  EXPECT_EQ(generation.context(), 4);
  EXPECT_EQ(generation.window(4), (Ids{5, 6, 7, 0, 8, 0, 0, 0}));
  EXPECT_EQ(generation.last_rows(4), (std::vector<std::int64_t>{2, 4}));
  generation.append(Ids{1, 2});
  EXPECT_EQ(generation.window(4), (Ids{5, 6, 7, 1, 8, 2, 0, 0}));
  EXPECT_EQ(generation.last_rows(4), (std::vector<std::int64_t>{3, 5}));
}

TEST(Generation, ReturnsTheLastTokensAndTheirPositions) {
  Generation generation(of_ids({"5,6,7", "8"}, 2), 10);
  EXPECT_EQ(generation.longest_prompt(), 3);
  for (int token = 1; token <= 2; ++token) generation.append(Ids{token, token + 1});
  const Generation::Last last = generation.last();
  EXPECT_EQ(last.tokens, (Ids{1, 3}));
  EXPECT_EQ(last.positions, (Ids{3, 2}));
  EXPECT_TRUE(generation.done());
}

TEST(Generation, DrawsEachSequenceFromItsOwnLogits) {
  Generation generation(of_ids({"0", "1"}, 3), 3);
  const std::vector<float> logits = {0, 0, 9, 0, 9, 0};
  EXPECT_EQ(generation.draw(logits), (Ids{2, 1}));
}

TEST(Generation, SequencesOfABatchDrawIndependentRandomNumbers) {
  const auto drawn = [](std::vector<std::string> prompts, std::uint64_t seed) {
    GenerateOptions options = of_ids(std::move(prompts), 40);
    options.sampling.temperature = 1;
    options.seed = seed;
    Generation generation(options, 50);
    std::vector<Ids> each(static_cast<std::size_t>(generation.sequences()));
    const std::vector<float> logits(each.size() * 50);
    while (!generation.done()) {
      const Ids next = generation.draw(logits);
      for (auto&& [ids, id] : ranges::views::zip(each, next)) ids.push_back(id);
      generation.append(next);
    }
    return each;
  };
  const std::vector<Ids> two = drawn({"1,2,3", "4"}, 7);
  EXPECT_NE(two[0], two[1]);
  EXPECT_EQ(drawn({"1"}, 7)[0], two[0]);
  EXPECT_NE(drawn({"1"}, 8)[0], two[0]);
}

TEST(Generation, ASequenceEndsAfterAStopTokenAndTheOthersContinue) {
  GenerateOptions options = of_ids({"3,1", "2"}, 3);
  options.stop_ids = {"3,4", "9"};  // stop tokens in a prompt are ignored
  Generation generation(options, 10);
  EXPECT_EQ(generation.take_output(), "");
  generation.append(Ids{1, 4});
  EXPECT_EQ(generation.take_output(), "");  // the first line is not complete
  generation.append(Ids{9, 5});
  EXPECT_TRUE(generation.done());
  EXPECT_EQ(generation.take_output(), "3,1,1,9\n2,4\n");
  EXPECT_EQ(generation.take_output(), "");
}

TEST(Generation, TextIsPrintedAsItGrowsAndEndsInANewline) {
  Generation generation({.prompt = "ab", .tokens = 2}, 256);
  EXPECT_EQ(generation.take_output(), "ab");
  generation.append(Ids{'c'});
  EXPECT_EQ(generation.take_output(), "c");
  generation.append(Ids{0xff});
  EXPECT_EQ(generation.take_output(), "\xff\n");
  EXPECT_EQ(generation.take_output(), "");
  EXPECT_EQ(Generation({.prompt = "ab", .tokens = 0}, 256).take_output(), "ab\n");
}

TEST(Generation, TheRepetitionPenaltyCoversPromptAndContinuation) {
  GenerateOptions options = of_ids({"0"}, 9);
  options.sampling.repetition_penalty = 10;
  Generation generation(options, 3);
  const std::vector<float> logits = {3, 2, 1};
  for (const std::int32_t wanted : {1, 2, 0}) {
    EXPECT_EQ(generation.draw(logits), Ids{wanted});
    generation.append(Ids{wanted});
  }
}

TEST(Generation, InvalidOptionsAreRefusedByName) {
  const auto bad = [](GenerateOptions options, std::int64_t vocabulary) { return Generation(options, vocabulary); };
  EXPECT_INPUT_ERROR(bad(of_ids({"1", "2,10"}, 1), 10), "--prompt-ids holds token 10, which is not below");
  GenerateOptions stops = of_ids({"1"}, 1);
  stops.stop_ids = {"12"};
  EXPECT_INPUT_ERROR(bad(stops, 10), "--stop-ids holds token 12, which is not below");
  EXPECT_INPUT_ERROR(bad({.prompt = "a"}, 257), "the model knows 257 tokens");
  EXPECT_INPUT_ERROR(bad({.prompt = "a"}, 97), "--prompt holds byte 97, which is not below");
  EXPECT_INPUT_ERROR(bad(of_ids({"1", "2"}, 1'500'000'000), 10), "take fewer --tokens");
  const Generation four(of_ids({"1,2", "1"}, 3), 10);
  four.require_positions(4, "M");
  EXPECT_INPUT_ERROR(four.require_positions(3, "M"), "the longest prompt has 2 tokens");
  EXPECT_INPUT_ERROR(four.require_positions(3, "M"), "more than the 3 positions of --model M");
  const auto validate_bound = [](GenerateOptions options) {
    FlagSet flags;
    bind(flags, options);
    validate(flags, options);
  };
  EXPECT_INPUT_ERROR(validate_bound({}), "--prompt is empty");
  EXPECT_INPUT_ERROR(validate_bound({.prompt = "a", .prompt_ids = {"1"}}), "given both");
}

TEST(Generation, TextOutputConsistsOfCompleteCharacters) {
  const std::filesystem::path file = std::filesystem::path(TESSERA_TEST_DATA) / "text" / "tokenizers" / "gpt2.json";
  const text::Tokenizer tokenizer = text::Tokenizer::read(file);
  const std::vector<text::TokenId> crab = tokenizer.encode(" \U0001F980!", false);
  GenerateOptions options{.prompt = "a text", .tokens = static_cast<std::int64_t>(crab.size())};
  Generation generation(options, tokenizer.vocabulary_size(), tokenizer);
  EXPECT_EQ(generation.sequences(), 1);
  std::string text = generation.take_output();
  EXPECT_EQ(text, "a text");
  for (const text::TokenId id : crab) {
    generation.append(Ids{static_cast<std::int32_t>(id)});
    const std::string more = generation.take_output();
    EXPECT_EQ(more.find("\uFFFD"), more.npos);
    text += more;
  }
  EXPECT_TRUE(generation.done());
  EXPECT_EQ(text, "a text \U0001F980!\n");
  EXPECT_EQ(generation.take_output(), "");
}

TEST(Generation, NeverDrawsIdsOutsideTheTokenizerExceptStopIds) {
  const text::Tokenizer tokenizer =
      text::Tokenizer::parse(R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":3},"merges":[]}})", "t.json");
  EXPECT_EQ(tokenizer.ids_without_token(6), (std::vector<text::TokenId>{2, 4, 5}));
  const std::vector<float> logits = {0, 1, 9, 2, 8, 7};
  GenerateOptions options = of_ids({"5"}, 3);  // a prompt may contain any id
  EXPECT_EQ(Generation(options, 6, tokenizer).draw(logits), Ids{3});
  EXPECT_EQ(Generation(options, 6).draw(logits), Ids{2});
  options.stop_ids = {"4"};
  EXPECT_EQ(Generation(options, 6, tokenizer).draw(logits), Ids{4});
}

TEST(Generation, RefusesAPromptWithTokensOutsideTheVocabulary) {
  const std::filesystem::path file = std::filesystem::path(TESSERA_TEST_DATA) / "text" / "tokenizers" / "llama3.json";
  EXPECT_INPUT_ERROR(Generation({.prompt = "some text"}, 3, text::Tokenizer::read(file)),
                     "which is not below the model's vocabulary of 3; is the tokenizer the model's?");
}

}  // namespace
}  // namespace fsdp::train
