// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/codec.hpp>

#include <gtest/gtest.h>

#include <examples/21_own_codec/codec.hpp>

#include "failures.hpp"

namespace fsdp::testing {
namespace {

using TestedCodecs = ::testing::Types<Plain<float>, Plain<bf16>, Int8Blocks<256>, Int8Blocks<4096>, Fp8Blocks<>,
                                      Dynamic8<>, Dynamic8<256, true>, Nf4Blocks<>, mine::Affine<64>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Ours, CodecSuite, TestedCodecs);

/// Codecs that are wrong in one way each.
struct Coarse : Int8Blocks<256> {
  static constexpr double largest_error = 1e-3;
};
struct Keyed : Int8Blocks<256> {  // draws by the position in the part
  template <class Stream, class T>
  void encode(Stream& stream, Tensor<const T> x, Tensor<std::byte> y, Draw draw) const {
    Int8Blocks<256>::encode(stream, x, y, {.key = draw.key});
  }
};
struct Quiet : Int8Blocks<256> {  // decodes NaN to 0
  template <class Stream, class T>
  void decode(Stream& stream, Tensor<const std::byte> x, Tensor<T> y) const {
    Int8Blocks<256>::decode(stream, x, y);
    for (std::int64_t i = 0; i < y.numel(); ++i)
      if (!(static_cast<float>(y[i]) == static_cast<float>(y[i]))) y[i] = T(0.0f);
  }
};
struct Unpadded : Plain<bf16> {  // blocks of 6 bytes
  static constexpr std::int64_t block = 3;
};
struct Ones : Plain<float> {  // bytes of zero are 1
  template <class Stream, class T>
  void decode(Stream&, Tensor<const std::byte>, Tensor<T> y) const {
    for (std::int64_t i = 0; i < y.numel(); ++i) y[i] = T(1.0f);
  }
};
struct Twice : Int8Blocks<256> {
  template <class Stream>
  void add_decoded(Stream& stream, Tensor<const std::byte> x, Tensor<float> y) const {
    for (int i = 0; i < 2; ++i) Int8Blocks<256>::add_decoded(stream, x, y);
  }
};

TEST(CodecKit, FindsCodecsThatAreWrongInOneWay) {
  expect_failure([] { check_round_trip<Coarse, float>(); }, "at most largest_error", "codec int8/256", " becomes ");
  expect_failure([] { check_parts<Keyed>(); }, "those of the whole", "codec int8/256", "when cut at 512");
  expect_failure([] { check_parts<Unpadded>(); }, "a multiple of 4", "1 elements", "2 bytes");
  expect_failure([] { check_special_values<Quiet>(); }, "not finite", "codec int8/256", "element 256 is 0");
  expect_failure([] { check_special_values<Ones>(); }, "bytes of zero", "codec float", "1");
  expect_failure([] { check_sums<Twice>(); }, "add_decoded adds what decode returns", "1 elements", " gave ");
}

}  // namespace
}  // namespace fsdp::testing
