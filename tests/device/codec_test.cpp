// SPDX-License-Identifier: Apache-2.0
/// Codecs on the CPU: bits, error bounds, what is not finite, and moments. The bits do not depend on the instruction
/// set, since the tests of device_<set> compare with the same definitions.
#include <cmath>
#include <limits>
#include <string_view>

#include <tessera/fsdp/precision/codec.hpp>

#include "codec_vectors.hpp"
#include "codecs.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

static_assert(check_codec<Plain<float>>() && check_codec<Plain<bf16>>() && check_codec<Int8Blocks<4096>>());
static_assert(check_codec<Fp8Blocks<>>() && check_codec<Dynamic8<>>() && check_codec<Dynamic8<256, true>>());
static_assert(check_codec<Nf4Blocks<>>() && !Codec<int> && !Codec<BlockCode>);
static_assert(Int8Blocks<256>().bytes(512) == 520 && Int8Blocks<256>().bytes(257) == 268);
static_assert(Nf4Blocks<64>().bytes(65) == 44 && Plain<bf16>().bytes(3) == 6);

TEST(Codecs, EncodeDecodeAndAddAsDefinedWithAnyNumberOfThreads) {
  for (const Case& c : Rank::variants())
    for (const std::int64_t count : {1, 15, 257, 1000, 40000})
      for (const std::int64_t elements : {64, 256, 4096}) {
        expect_codes<float, Rank>(c, count, elements);
        expect_codes<bf16, Rank>(c, count, elements);
      }
}

/// Returns the decoded numbers of one block.
std::vector<float> round_trip(BlockKind kind, const std::vector<float>& x, Draw draw = {}) {
  const BlockCode code{.kind = kind, .elements = std::ssize(x) + std::ssize(x) % 2};
  Rank rank(1);
  const NumbersOnHost<float> from(rank, x), to(rank, std::vector<float>(x.size()));
  const NumbersOnHost<std::byte> bytes(rank, Bytes(static_cast<std::size_t>(code.bytes(std::ssize(x)))));
  enqueue(rank.stream, EncodeBlocks<float>{.code = code, .x = from, .y = bytes, .draw = draw});
  enqueue(rank.stream, DecodeBlocks<float>{.code = code, .x = bytes, .y = to});
  return to.back();
}

TEST(Codecs, DecodeToTheNearestValueOverAllExponents) {
  for (const BlockKind kind : all_kinds) {
    const std::vector<float> values = values_of_kind(kind);
    const double top = kind == BlockKind::int8 ? 127 : kind == BlockKind::fp8 ? 448 : 1;
    for (int exponent = -149; exponent <= 127; ++exponent) {
      std::vector<float> x = numbers(3, 64, 26);
      for (float& value : x) {
        value = std::ldexp(value, exponent);
        if (kind == BlockKind::dynamic8_unsigned) value = std::abs(value);
      }
      x[7] = std::ldexp(1.5f, exponent);  // the largest
      const std::vector<float> found = round_trip(kind, x);
      const double scale = static_cast<double>(x[7]) / top;
      const double denormal = 0x1p-149 * (1 + top);  // rounding of the scale and of the product
      for (std::size_t i = 0; i < x.size(); ++i) {
        double nearest = std::numeric_limits<double>::infinity();
        for (const float value : values)
          nearest = std::fmin(nearest, std::abs(value * scale - static_cast<double>(x[i])));
        ASSERT_LE(std::abs(static_cast<double>(found[i]) - static_cast<double>(x[i])),
                  nearest + 2e-6 * std::abs(static_cast<double>(x[i])) + denormal)
            << "kind " << static_cast<int>(kind) << " 2^" << exponent << " of " << x[i];
      }
    }
  }
}

TEST(Codecs, AnOutlierCostsItsBlockAtMostTheSpacingOfTheCodes) {
  std::vector<float> x(256, 1.0f);
  x[100] = 1e4f;
  const double bounds[] = {40, 1.0 / 16, 0.12, 0.12, 1.0};  // 1e4 / 254; relative; a part at 1e-4; NF4 gives 0
  for (const BlockKind kind : all_kinds) {
    const std::vector<float> found = round_trip(kind, x);
    EXPECT_NEAR(found[100], 1e4, 1e-2);
    EXPECT_NEAR(found[0], 1, bounds[static_cast<int>(kind)]) << static_cast<int>(kind);
  }
}

TEST(Codecs, ABlockThatIsNotFiniteDecodesToNaNThroughout) {
  for (const BlockKind kind : all_kinds)
    for (const float bad : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> x(70, 1.0f);
      x[69] = bad;
      for (const float value : round_trip(kind, x)) EXPECT_TRUE(std::isnan(value)) << static_cast<int>(kind);
      for (const float value : round_trip(kind, std::vector<float>(70))) EXPECT_EQ(value, 0);
    }
}

TEST(Codecs, RoundStochasticallyWithoutBiasAndByTheKey) {
  std::vector<float> x(16384, 0.3f);
  x[0] = 127;  // codes are integers, and 0.3 lies between two
  for (const BlockKind kind : {BlockKind::int8, BlockKind::fp8}) {
    for (float& value : x) value = kind == BlockKind::fp8 && value < 1 ? 17.3f / 16 : value;
    double sum = 0, squares = 0;
    const std::vector<float> found = round_trip(kind, x, {.key = 3});
    for (std::size_t i = 1; i < x.size(); ++i) sum += found[i] - x[i], squares += (found[i] - x[i]) * (found[i] - x[i]);
    EXPECT_LT(std::abs(sum), 4 * std::sqrt(squares)) << static_cast<int>(kind);
    EXPECT_GT(squares, 0);
    EXPECT_EQ(found[0], 127);
    EXPECT_NE(found, round_trip(kind, x, {.key = 4}));
  }
}

Bytes from_hex(std::string_view text) {
  Bytes bytes;
  for (std::size_t i = 0; i < text.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  return bytes;
}

/// Splits blocks into codes and scales, which bitsandbytes keeps apart.
std::pair<Bytes, Bytes> codes_and_scales(const BlockCode& code, const Bytes& bytes) {
  std::pair<Bytes, Bytes> found;
  const std::int64_t size = code.block_bytes(code.elements);
  for (std::int64_t at = 0; at < std::ssize(bytes); ++at)
    (at % size < 4 ? found.second : found.first).push_back(bytes[static_cast<std::size_t>(at)]);
  return found;
}

TEST(Codecs, HaveTheBytesOfBitsandbytes) {
  const auto expect = [](const BlockCode& code, std::vector<float> x, std::string_view codes, std::string_view scales) {
    EXPECT_EQ(codes_and_scales(code, encoded(code, x, {})), (std::pair{from_hex(codes), from_hex(scales)}))
        << static_cast<int>(code.kind);
  };
  std::vector<float> x = numbers(7, 1024, 24);
  expect(first_moment_code, x, vectors::dynamic8_codes, vectors::dynamic8_scales);
  for (float& value : x) value = std::abs(value);
  expect(second_moment_code, x, vectors::dynamic8_unsigned_codes, vectors::dynamic8_unsigned_scales);
  expect({BlockKind::nf4, 64}, numbers(9, 1024, 6), vectors::nf4_codes, vectors::nf4_scales);
}

// ---- Moments

/// Weights, their encoded moments, and steps with a gradient.
struct Moments {
  Moments(std::int64_t count, MomentForm encoded_as, std::uint64_t draw, AdamWRules constants)
      : form(encoded_as), key(draw), rules(constants), w(rank, std::vector<float>(static_cast<std::size_t>(count))) {}

  void step(const std::vector<float>& g, double lr = 1e-3) {
    const NumbersOnHost<float> gradient(rank, g);
    const NumbersOnHost<StepDecision> decision(rank, {{.taken = ++taken, .lr = lr}});
    enqueue(rank.stream, CodedAdamWStep<float>{.rules = rules,
                                               .step = decision,
                                               .main = w.view(),
                                               .first_moment = m,
                                               .second_moment = v,
                                               .form = form,
                                               .gradient = gradient,
                                               .draw = {.key = key}});
  }
  std::vector<float> second() { return decoded_moment(form, true, v.back(), w.view().numel()); }

  Rank rank{1};
  MomentForm form;
  std::uint64_t key;
  AdamWRules rules;
  std::int64_t taken = 0;
  NumbersOnHost<float> w;
  Bytes zeros = Bytes(static_cast<std::size_t>(moment_bytes(form, w.view().numel())));
  NumbersOnHost<std::byte> m{rank, zeros}, v{rank, zeros};
};

TEST(CodedAdamW, StepsEncodedMomentsAsDefinedWithAnyNumberOfThreads) {
  for (const Case& c : Rank::variants())
    for (const MomentForm form : {MomentForm::bf16, MomentForm::dynamic8})
      for (const std::int64_t count : {1, 255, 1027, 20011}) {
        expect_coded_adamw<float, Rank>(c, form, count);
        expect_coded_adamw<bf16, Rank>(c, form, count);
      }
}

TEST(CodedAdamW, HasTheCodesOfBitsandbytesAfterTwentySteps) {
  Moments ours(1024, MomentForm::dynamic8, 0, {.beta1 = 0.9, .beta2 = 0.95});
  for (std::uint32_t step = 1; step <= 20; ++step) ours.step(numbers(step * 1000003, 1024, 8));
  EXPECT_EQ(codes_and_scales(first_moment_code, ours.m.back()).first, from_hex(vectors::adamw_first_codes));
  EXPECT_EQ(codes_and_scales(second_moment_code, ours.v.back()).first, from_hex(vectors::adamw_second_codes));
}

TEST(CodedAdamW, SecondMomentsFollowFloatOverTenThousandStepsWithoutGradient) {
  constexpr AdamWRules rules{.beta1 = 0.9, .beta2 = 0.999};
  const double decay = std::pow(static_cast<double>(0.999f), 10000);
  struct Expected {
    MomentForm form;
    std::uint64_t key;
    double ratio, tolerance;
  };
  // To nearest, bf16 never decays. Dynamic8 decays as float does: all codes stay, and the scale is a float.
  for (const auto& [form, key, ratio, tolerance] :
       {Expected{MomentForm::bf16, 5, decay, 0.05}, Expected{MomentForm::bf16, 0, 1, 0.01},
        Expected{MomentForm::dynamic8, 0, decay, 0.001}}) {
    Moments moments(16384, form, key, rules);
    std::vector<float> g(16384, 0.5f);
    moments.step(g);
    const std::vector<float> before = moments.second();
    std::ranges::fill(g, 0.0f);
    for (int step = 0; step < 10000; ++step) moments.step(g);
    double sum = 0, first = 0;
    for (const float value : moments.second()) sum += value;
    for (const float value : before) first += value;
    EXPECT_NEAR(sum / first / ratio, 1, tolerance) << static_cast<int>(form) << " key " << key;
  }
}

// Without a bound, v = (1e-4)^2 of the block's largest becomes 0, and the next update is m / eps.
TEST(CodedAdamW, UpdatesAreBoundedNextToAGradientThatIsTenThousandTimesAsLarge) {
  for (const MomentForm form : {MomentForm::bf16, MomentForm::dynamic8}) {
    Moments moments(256, form, 5, {});
    std::vector<float> g(256, 1e-3f);
    g[17] = 10;
    for (int step = 0; step < 30; ++step) {
      const std::vector<float> before = moments.w.back();
      moments.step(g, 1);
      std::ranges::fill(g, 1e-3f);
      for (std::size_t i = 0; i < g.size(); ++i)
        ASSERT_LE(std::abs(moments.w.back()[i] - before[i]), 2.0f) << step;  // with float moments 1
    }
  }
}

}  // namespace
}  // namespace fsdp::device
