// SPDX-License-Identifier: Apache-2.0
// expect 1: fsdp: a codec lacks its block, the number of elements that it encodes together; give it static
// expect 2: fsdp: a codec lacks template <class Stream> void add_decoded(Stream&, Tensor<const std::byte> x,
#include <tessera/fsdp/precision/codec.hpp>

namespace fsdp {

struct WithoutBlock {
  std::int64_t bytes(std::int64_t count) const { return count; }
};

struct WithoutSum {
  static constexpr std::int64_t block = 1;
  std::int64_t bytes(std::int64_t count) const { return count; }
  std::string text() const { return "no sum"; }
  template <class Stream, class T>
  void encode(Stream&, Tensor<const T>, Tensor<std::byte>, Draw) const {}
  template <class Stream, class T>
  void decode(Stream&, Tensor<const std::byte>, Tensor<T>) const {}
};

struct WithoutElements : Int8Blocks<256> {
  static constexpr std::int64_t block = 0;
};

#if CASE == 0
static_assert(check_codec<Int8Blocks<256>>() && check_codec<Plain<bf16>>() && !Codec<WithoutElements>);
#elif CASE == 1
static_assert(check_codec<WithoutBlock>());
#elif CASE == 2
static_assert(check_codec<WithoutSum>());
#endif

}  // namespace fsdp
