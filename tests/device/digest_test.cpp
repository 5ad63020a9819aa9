// SPDX-License-Identifier: Apache-2.0
// Digests do not depend on the split of a tensor or on the number of threads, and change with every bit.
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tessera/fsdp/device/operations/elements.hpp>

#include "reference.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

constexpr std::uint64_t key = digest_key("model.layers.0.weight");

template <class T>
std::uint64_t digest_of(const T* x, std::int64_t count, std::int64_t begin, int threads = 1) {
  Rank rank(threads);
  std::int64_t sum = 5;
  enqueue(rank.stream, AddDigest<T>{.x = Tensor<const T>(x, {count}), .begin = begin, .key = key, .sum = {&sum, {1}}});
  return static_cast<std::uint64_t>(sum) - 5;
}

template <class T>
std::uint64_t by_hand(const T* x, std::int64_t count) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, x + i, sizeof(T));  // assumes a little-endian machine
    sum += key * (2 * static_cast<std::uint64_t>(i) + 1) * bits;
  }
  return sum;
}

template <class T>
void expect_sums_of_bits() {
  for (const std::int64_t count : {0, 1, 3, 15, 16, 17, 257, 16384, 16385, 40011}) {
    const auto x = Matrix<T>::random(1, 1, count);
    const T* const data = x.vector_input().data();
    const std::uint64_t expected = by_hand(data, count);
    for (const int threads : team_sizes()) EXPECT_EQ(digest_of(data, count, 0, threads), expected) << count;
    for (const std::int64_t cut : {count / 3, count / 2, count})
      EXPECT_EQ(digest_of(data, cut, 0) + digest_of(data + cut, count - cut, cut), expected) << count << " at " << cut;
  }
}

TEST(Digest, IsTheSameSumOfBitsForAnySplitOfATensor) {
  expect_sums_of_bits<float>();
  expect_sums_of_bits<bf16>();
}

TEST(Digest, ChangesWithEveryFlippedBit) {
  auto x = Matrix<float>::random(1, 1, 100);
  float* const data = x.vector().data();
  const std::uint64_t before = digest_of(data, 100, 0);
  for (float& element : std::span(data, 100))
    for (int bit = 0; bit < 32; ++bit) {
      const float kept = element;
      element = std::bit_cast<float>(std::bit_cast<std::uint32_t>(element) ^ 1u << bit);
      ASSERT_NE(digest_of(data, 100, 0), before) << "bit " << bit << " of element " << &element - data;
      element = kept;
    }
}

TEST(Digest, DependsOnPositionsAndNames) {
  const std::vector<float> x = {1, 2, 3}, swapped = {2, 1, 3};
  EXPECT_NE(digest_of(x.data(), 3, 0), digest_of(swapped.data(), 3, 0));
  EXPECT_NE(digest_of(x.data(), 3, 0), digest_of(x.data(), 3, 1));
  EXPECT_NE(digest_key("a"), digest_key("b"));
  EXPECT_EQ(digest_key("a") % 2, 1u);
}

}  // namespace
}  // namespace fsdp::device
