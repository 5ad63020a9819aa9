// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a codec on the CPU: error bounds, blocks, zeros, what is not finite, and counts of bytes.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, CodecSuite, mine::Codec);
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/precision/codec.hpp>
#include <tessera/fsdp/testing/guarded.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// A codec under test with a CPU stream.
template <class C>
class CodecRun {
 public:
  static_assert(check_codec<C, device::Cpu::Stream>());
  using Bytes = std::vector<std::byte>;

  /// Encodes numbers, the first of which is element `first` of its tensor. Stops if memory around the bytes is written.
  template <class T>
  Bytes encoded(const std::vector<T>& x, std::uint64_t key = 0, std::int64_t first = 0) {
    const auto count = std::ssize(x);
    Guarded<std::byte> bytes({codec_.bytes(count)}, std::byte{0x5a});
    codec_.encode(stream_, Tensor<const T>(x.data(), {count}), bytes.view(), Draw{.key = key, .first = first});
    if (const std::string touched = bytes.touched(); !touched.empty())
      stop("encode writes bytes(count) bytes and no others", in_words(count), touched);
    return bytes.values();
  }
  /// Decodes or adds numbers. `decoded` stops if memory around its elements is written.
  /// @{
  template <class T>
  std::vector<T> decoded(const Bytes& bytes, std::int64_t count) {
    Guarded<T> values({count}, T(77.0f));
    codec_.decode(stream_, Tensor<const std::byte>(bytes.data(), {std::ssize(bytes)}), values.view());
    if (const std::string touched = values.touched(); !touched.empty())
      stop("decode writes its elements and no others", in_words(count), touched);
    return values.values();
  }
  void add_decoded(const Bytes& bytes, std::vector<float>& y) {
    codec_.add_decoded(stream_, Tensor<const std::byte>(bytes.data(), {std::ssize(bytes)}),
                       Tensor<float>(y.data(), {std::ssize(y)}));
  }
  /// @}
  /// Sizes: one element, less than a block, whole blocks, and enough for a team of threads.
  static std::vector<std::int64_t> counts() {
    return {1, std::max<std::int64_t>(C::block - 1, 1), C::block + 3, (20000 / C::block + 3) * C::block + 1};
  }
  /// Returns the case as text.
  std::string in_words(std::int64_t count) const { return message("codec ", codec_.text(), ", ", count, " elements"); }
  const C& codec() const { return codec_; }  ///< the codec under test

 private:
  C codec_ = {};
  device::Ledger ledger_;
  device::Cpu::Arena arena_{ledger_, 1 << 20};
  device::Cpu::Stream stream_{arena_, 2};
};

/// Returns numbers up to `scale` in magnitude, most of them much smaller.
template <class T>
std::vector<T> codec_numbers(std::int64_t count, double scale = 1) {
  std::vector<T> x;
  for (std::int64_t i = 0; i < count; ++i)
    x.push_back(T(static_cast<float>(scale * std::abs(number_at(1, i)) * number_at(2, i))));
  return x;
}

/// Checks errors against `largest_error` (a quarter, if the codec does not declare it) over many scales. Codecs of
/// magnitudes, whose text contains "u/", are given magnitudes.
template <class C, class T>
void check_round_trip() {
  CodecRun<C> run;
  double bound = 0.25;
  if constexpr (requires { C::largest_error; }) bound = C::largest_error;
  if constexpr (std::is_same_v<T, bf16>) bound += 0x1p-8;  // the result's own rounding
  for (const std::int64_t count : run.counts())
    for (const int exponent : {-100, 0, 100}) {
      std::vector<T> x = codec_numbers<T>(count, std::ldexp(1.0, exponent));
      if (run.codec().text().find("u/") != std::string::npos)
        for (T& value : x) value = T(std::abs(static_cast<float>(value)));
      const std::vector<T> y = run.template decoded<T>(run.encoded(x), count);
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i), begin = static_cast<std::size_t>(i / C::block * C::block);
        double largest = 0;
        for (std::size_t j = begin; j < x.size() && j < begin + C::block; ++j)
          largest = std::max(largest, std::abs(static_cast<double>(static_cast<float>(x[j]))));
        const double error = std::abs(static_cast<double>(static_cast<float>(y[at])) - static_cast<float>(x[at]));
        if (!(error <= (bound + 1e-6) * largest))
          return void(fail("an element differs by at most largest_error times its block's largest magnitude",
                           run.in_words(count), in_words(x[at]), " becomes ", in_words(y[at]), " in a block up to ",
                           in_words(largest)));
      }
    }
}

/// Checks that bytes of parts cut at blocks are those of the whole, rounded to nearest and stochastically.
template <class C>
void check_parts() {
  CodecRun<C> run;
  const std::int64_t count = 5 * C::block + 3, cut = 2 * C::block;
  const std::vector<float> x = codec_numbers<float>(count);
  for (const std::uint64_t key : {0u, 77u}) {
    auto parts = run.encoded(std::vector(x.begin(), x.begin() + cut), key);
    const auto rest = run.encoded(std::vector(x.begin() + cut, x.end()), key, cut);
    parts.insert(parts.end(), rest.begin(), rest.end());
    if (parts != run.encoded(x, key))
      fail("the bytes of parts that are cut at blocks are those of the whole, with the same draw", run.in_words(count),
           "other bytes with key ", key, " when cut at ", cut);
  }
  for (const std::int64_t n : run.counts()) {
    const std::int64_t bytes = run.codec().bytes(n);
    if (run.codec().bytes(cut + n) != run.codec().bytes(cut) + bytes || bytes <= 0)
      fail("bytes(a + b) is bytes(a) + bytes(b) if a is a multiple of block", run.in_words(n), bytes, " bytes, and ",
           run.codec().bytes(cut + n), " behind ", cut, " elements");
    if (C::block > 1 && bytes % 4 != 0)
      fail("the bytes of each block are a multiple of 4, the last included", run.in_words(n), bytes, " bytes");
  }
}

/// Checks blocks of zeros, bytes of zero, and that an element that is not finite makes its block NaN, and no other.
template <class C>
void check_special_values() {
  CodecRun<C> run;
  const std::int64_t count = 3 * C::block;
  const typename CodecRun<C>::Bytes zeros(static_cast<std::size_t>(run.codec().bytes(count)));
  for (const float value : run.template decoded<float>(zeros, count))
    if (value != 0)
      return void(fail("bytes of zero, which new states are, decode to zeros", run.in_words(count), in_words(value)));
  for (const float special : {0.0f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> x = codec_numbers<float>(count);
    const auto begin = x.begin() + C::block;
    if (special == 0) std::fill(begin, begin + C::block, 0.0f);
    x[static_cast<std::size_t>(2 * C::block - 1)] = special;
    const std::vector<float> y = run.template decoded<float>(run.encoded(x), count);
    for (std::int64_t i = 0; i < count; ++i) {
      const float value = y[static_cast<std::size_t>(i)];
      const bool inside = i / C::block == 1;
      const bool holds = !inside ? std::isfinite(value) : special == 0 ? value == 0 : !std::isfinite(value);
      if (!holds)
        return void(fail("zeros decode to zeros, and a block with an element that is not finite to none that is finite",
                         run.in_words(count), "element ", i, " is ", in_words(value), ", with ", in_words(special),
                         " in block 1"));
    }
  }
}

/// Checks that add_decoded adds what decode returns.
template <class C>
void check_sums() {
  CodecRun<C> run;
  for (const std::int64_t count : run.counts()) {
    const auto bytes = run.encoded(codec_numbers<float>(count));
    const std::vector<float> values = run.template decoded<float>(bytes, count);
    std::vector<float> y(values.size(), 0.5f);
    run.add_decoded(bytes, y);
    for (std::size_t i = 0; i < y.size(); ++i)
      if (!same_bits(y[i], 0.5f + values[i]))
        return void(fail("add_decoded adds what decode returns, in float", run.in_words(count), "0.5 and ",
                         in_words(values[i]), " gave ", in_words(y[i])));
  }
}

template <class C>
class CodecSuite : public ::testing::Test {};

FSDP_SUITE(CodecSuite, (KeepsFloatsWithinItsLargestError, check_round_trip<TypeParam, float>()),
           (KeepsBf16WithinItsLargestError, check_round_trip<TypeParam, bf16>()),
           (EncodesPartsAsTheWhole, check_parts<TypeParam>()),
           (KeepsZerosAndShowsWhatIsNotFinite, check_special_values<TypeParam>()),
           (AddsWhatItDecodes, check_sums<TypeParam>()));

}  // namespace fsdp::testing
