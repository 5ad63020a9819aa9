// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include <range/v3/view/zip.hpp>

#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/generate/sampling.hpp>
#include "support/temporary_folder.hpp"

namespace fsdp::train {
namespace {

using Tokens = std::vector<std::int32_t>;

/// Logits whose softmax is 1/2, 1/4, 1/8, 1/16, 1/16, in another order: tokens 2, 0, 4, 1 and 3.
const std::vector<float> halves = {std::log(4.0f), 0, std::log(8.0f), 0, std::log(2.0f)};

void expect_near(const std::vector<double>& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [probability, expected] : ranges::views::zip(found, wanted))
    EXPECT_NEAR(probability, expected, 1e-6);
}

TEST(Sample, TakesTheMostLikelyOrTheDrawnToken) {
  const std::array<float, 3> logits = {0.0f, std::log(2.0f), 0.0f};  // 1/4, 1/2, 1/4
  EXPECT_EQ(sample(logits, {}, {.temperature = 0}, 0.99), 1);
  EXPECT_EQ(sample(logits, {}, {.temperature = 1}, 0.2), 0);
  EXPECT_EQ(sample(logits, {}, {.temperature = 1}, 0.3), 1);
  EXPECT_EQ(sample(logits, {}, {.temperature = 1}, 0.8), 2);
}

TEST(Sample, LogitsThatAreNotFiniteAreAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()})
    for (const double temperature : {0.0, 1.0}) {
      const std::array<float, 3> logits = {1, bad, 2};
      EXPECT_INPUT_ERROR(sample(logits, {}, {.temperature = temperature}, 0.5), "not all finite");
    }
}

TEST(Sample, GreedyBreaksTiesByTheLowestId) {
  EXPECT_EQ(sample(std::array<float, 4>{1, 3, 3, 2}, {}, {.temperature = 0}, 0.9), 1);
}

TEST(Sample, NeverDrawsARemovedToken) {
  const Sampling two{.temperature = 1, .top_k = 2};
  for (const double uniform : {0.0, 0.3, 0.34, 0.9, std::nextafter(1.0, 0.0)}) {
    const std::int32_t token = sample(halves, {}, two, uniform);
    EXPECT_TRUE(token == 0 || token == 2) << uniform;
  }
  for (std::size_t n = 1; n <= 200; ++n) {  // sums of n times 1 / n, some of which are rounded to less than 1
    std::vector<float> logits(n + 1);
    logits.back() = -5;
    EXPECT_LT(sample(logits, {}, {.temperature = 1, .top_k = static_cast<std::int64_t>(n)}, std::nextafter(1.0, 0.0)),
              static_cast<std::int32_t>(n));
  }
  EXPECT_EQ(sample(halves, {}, two, 0.3), 0);   // 1/3
  EXPECT_EQ(sample(halves, {}, two, 0.34), 2);  // 2/3
}

TEST(Probabilities, AreTheSoftmaxOfLogitsOverTemperature) {
  expect_near(probabilities(halves, {}, {.temperature = 1}), {1. / 4, 1. / 16, 1. / 2, 1. / 16, 1. / 8});
  // Half the temperature squares: 16, 1, 64, 1, 4 of 86.
  expect_near(probabilities(halves, {}, {.temperature = 0.5}), {16. / 86, 1. / 86, 64. / 86, 1. / 86, 4. / 86});
  expect_near(probabilities(halves, {}, {.temperature = 1e-320}), {0, 0, 1, 0, 0});
}

TEST(Probabilities, OfExcludedIdsAreZero) {
  const Tokens two = {2};
  expect_near(probabilities(halves, {}, {.temperature = 1}, two), {1. / 2, 1. / 8, 0, 1. / 8, 1. / 4});
  expect_near(probabilities(halves, two, {.temperature = 1, .top_k = 2, .repetition_penalty = 2}, two),
              {2. / 3, 0, 0, 0, 1. / 3});
  EXPECT_EQ(sample(halves, {}, {.temperature = 0}, 0, two), 0);
  EXPECT_INPUT_ERROR(sample(halves, {}, {.temperature = 1}, 0.5, Tokens{0, 1, 2, 3, 4}), "none can be drawn");
}

TEST(Probabilities, TopKKeepsTheMostLikelyIncludingTiesWithTheLast) {
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_k = 1}), {0, 0, 1, 0, 0});
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_k = 3}), {2. / 7, 0, 4. / 7, 0, 1. / 7});
  const auto all = probabilities(halves, {}, {.temperature = 1});
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_k = 4}), all);  // 1 and 3 are equally likely
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_k = 99}), all);
}

TEST(Probabilities, TopPKeepsTheSmallestSetThatReachesTheMass) {
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_p = 0}), {0, 0, 1, 0, 0});
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_p = 0.49}), {0, 0, 1, 0, 0});
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_p = 0.51}), {1. / 3, 0, 2. / 3, 0, 0});
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_p = 0.76}), {2. / 7, 0, 4. / 7, 0, 1. / 7});
  // Tokens 1 and 3 are equally likely; the lower id comes first.
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_p = 0.9}), {4. / 15, 0, 8. / 15, 1. / 15, 2. / 15});
}

TEST(Probabilities, MinPKeepsTokensAboveAShareOfTheMostLikely) {
  expect_near(probabilities(halves, {}, {.temperature = 1, .min_p = 0.3}), {1. / 3, 0, 2. / 3, 0, 0});
  expect_near(probabilities(halves, {}, {.temperature = 1, .min_p = 0.2}), {2. / 7, 0, 4. / 7, 0, 1. / 7});
  expect_near(probabilities(halves, {}, {.temperature = 1, .min_p = 1}), {0, 0, 1, 0, 0});
}

TEST(Probabilities, RepetitionPenaltyAppliesOncePerTokenByLogitSign) {
  const std::vector<float> logits = {2, -1, 0, 1};
  const auto weights = [](std::vector<double> scores) {
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score);
    for (double& score : scores) score /= sum;
    return scores;
  };
  expect_near(probabilities(logits, Tokens{0, 1, 0, 2}, {.temperature = 1, .repetition_penalty = 4}),
              weights({0.5, -4, 0, 1}));
  expect_near(probabilities(logits, Tokens{1}, {.temperature = 1, .repetition_penalty = 0.5}),
              weights({2, -0.5, 0, 1}));
  EXPECT_EQ(sample(logits, Tokens{0}, {.temperature = 0, .repetition_penalty = 4}, 0), 3);
}

TEST(Probabilities, PenaltyPrecedesTemperatureAndTopKPrecedesTopPAndMinP) {
  // 2 / 4 and 1, divided by 1/2, give 1 and 2; the opposite order would give 4 / 4 and 2.
  const std::vector<float> logits = {2, 1};
  const double ratio = std::exp(-1.0);
  expect_near(probabilities(logits, Tokens{0}, {.temperature = 0.5, .repetition_penalty = 4}),
              {ratio / (1 + ratio), 1 / (1 + ratio)});
  // Temperature first: at 2 the probabilities become their roots 2, 1, 2.83, 1, 1.41 of 8.24, and top-p 0.5 takes two
  // of them.
  const double root = std::sqrt(2.0);
  expect_near(probabilities(halves, {}, {.temperature = 2, .top_p = 0.5}),
              {2 / (2 + 2 * root), 0, 2 * root / (2 + 2 * root), 0, 0});
  // Of the two tokens that top-k leaves, the most likely has 2/3; of all tokens it would have 1/2, and top-p 0.6 would
  // take two.
  expect_near(probabilities(halves, {}, {.temperature = 1, .top_k = 2, .top_p = 0.6}), {0, 0, 1, 0, 0});
}

// The logits processors of transformers 5.23.0 in float64 (PyTorch 2.15.0), one after another.
TEST(Probabilities, MatchTransformers) {
  const std::vector<float> logits = {1.5, -0.75, 2.25, 0.5, -2, 3, 0.125, 1, -0.25, 2.75};
  const Tokens seen = {5, 1, 5, 9};
  const auto of = [&](double penalty, double temperature, std::int64_t k, double p, double min_p) {
    return probabilities(
        logits, seen,
        {.temperature = temperature, .top_k = k, .top_p = p, .min_p = min_p, .repetition_penalty = penalty});
  };
  expect_near(of(1.25, 0.75, 0, 1, 0), {0.093778595, 0.0036361908, 0.25491665, 0.024719769, 0.00088185289, 0.3113559,
                                        0.014993298, 0.048147536, 0.0090938949, 0.23847631});
  expect_near(of(1.25, 0.75, 6, 1, 0),
              {0.096540149, 0, 0.26242333, 0.025447707, 0, 0.32052458, 0, 0.049565365, 0, 0.24549886});
  expect_near(of(1.25, 0.75, 0, 0.8, 0), {0, 0, 0.31676547, 0, 0, 0.38689822, 0, 0, 0, 0.29633631});
  expect_near(of(1.25, 0.75, 0, 1, 0.2), {0.1043692, 0, 0.28370491, 0, 0, 0.34651796, 0, 0, 0, 0.26540793});
  expect_near(of(1.25, 0.75, 6, 0.8, 0.3), {0, 0, 0.31676547, 0, 0, 0.38689822, 0, 0, 0, 0.29633631});
  expect_near(of(0.5, 1.5, 7, 0.9, 0.1), {0, 0, 0, 0, 0, 0.58257021, 0, 0, 0, 0.41742979});
}

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

TEST(SampleText, RefusesPromptsThatAreTooLongOrOutsideTheVocabulary) {
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
