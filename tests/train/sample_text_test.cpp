// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/generate/samples.hpp>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

TrainOptions options_of(const std::string& prompt, std::int64_t tokens) {
  return {.seq_len = 12, .sample_prompt = prompt, .sample_tokens = tokens};
}

TEST(SampleText, ReadsAndWritesBytesWithoutATokenizer) {
  SampleText sample(options_of("ab", 3), "", 256);
  EXPECT_EQ(sample.prompt(), (std::vector<std::int32_t>{'a', 'b'}));
  for (int again = 0; again < 2; ++again) {
    sample.begin();
    EXPECT_TRUE(sample.push('c'));
    EXPECT_TRUE(sample.push(0xff));
    EXPECT_FALSE(sample.push('d')) << "three tokens were asked for";
    EXPECT_EQ(sample.take(),
              "c\xEF\xBF\xBD"
              "d");
  }
}

TEST(SampleText, RefusesAPromptThatIsTooLongOrThatTheVocabularyLacks) {
  EXPECT_INPUT_ERROR(SampleText(options_of("0123456789", 3), "", 256),
                     "--sample-prompt has 10 tokens, and --seq-len 12 leaves 9 beside --sample-tokens 3");
  EXPECT_NO_THROW(SampleText(options_of("012345678", 3), "", 256));
  EXPECT_INPUT_ERROR(SampleText(options_of("z", 3), "", 64), "--sample-prompt holds byte 122");
  EXPECT_INPUT_ERROR(SampleText(options_of("z", 3), "", 300), "name a tokenizer by --tokenizer");
  TrainOptions chat = options_of("z", 3);
  chat.data_format = data::TokenFormat::chat;
  EXPECT_INPUT_ERROR(SampleText(chat, "", 300), "name one by --tokenizer");
}

}  // namespace
}  // namespace fsdp::train
