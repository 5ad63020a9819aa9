// SPDX-License-Identifier: Apache-2.0
/// @file
/// Codes in blocks, and AdamW on encoded moments. The compiler vectorises the loops over a block's elements. Compiled
/// without contraction and with its own rounding to bf16, so that all instruction sets give the same bits.
#include "../../block_codes.hpp"
#include "../../optimizer_step.hpp"
#include "tables.hpp"
#include "vector.hpp"

namespace fsdp::device::cpu {
namespace {

constexpr DynamicMap signed_map(true), unsigned_map(false);
constexpr NormalFloat4 nf4_map;
constexpr std::int64_t most = 256;  ///< number of elements that are processed together

/// Calls body with the BlockCodes of a kind.
template <class Body>
FSDP_INLINE void with_codes(BlockKind kind, const Body& body) {
  switch (kind) {
    case BlockKind::int8: return body(BlockCodes<BlockKind::int8>{});
    case BlockKind::fp8: return body(BlockCodes<BlockKind::fp8>{});
    case BlockKind::dynamic8: return body(BlockCodes<BlockKind::dynamic8>{signed_map});
    case BlockKind::dynamic8_unsigned: return body(BlockCodes<BlockKind::dynamic8_unsigned>{{unsigned_map}});
    case BlockKind::nf4: return body(BlockCodes<BlockKind::nf4>{nf4_map});
  }
}

FSDP_INLINE void put(float* to, float value) { *to = value; }
FSDP_INLINE void put(bf16* to, float value) { to->bits = bf16_bits(value, 0, false); }

/// Returns the bits of the largest magnitude.
template <class T>
FSDP_INLINE std::uint32_t largest_of(const T* x, std::int64_t count) {
  std::int32_t largest = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::int32_t>(fsdp::device::bits_of(x[i]) & 0x7fffffff);
    largest = bits > largest ? bits : largest;
  }
  return static_cast<std::uint32_t>(largest);
}

/// Calls step(begin, end) for a block's ranges of at most `most` elements.
template <class Step>
FSDP_INLINE void for_ranges(std::int64_t count, Step step) {
  for (std::int64_t begin = 0; begin < count; begin += most) step(begin, count - begin < most ? count : begin + most);
}

template <bool stochastic, class Codes, class T>
FSDP_INLINE void encode_block(const Codes& codes, bool halves, const T* x, std::uint8_t* y, std::int64_t count,
                              std::uint32_t row) {
  const BlockScale scale(largest_of(x, count), Codes::top);
  __builtin_memcpy(y, &scale.scale, 4);
  y += 4;
  const std::uint8_t zero = codes.code(0, 0, false);
  for_ranges(count, [&](std::int64_t begin, std::int64_t end) FSDP_INLINE_LAMBDA {
    std::uint8_t found[most];
    const std::int64_t length = end - begin;
    for (std::int64_t i = 0; i < length; ++i) {
      const std::uint32_t word = stochastic ? dropout_word(row, static_cast<std::uint32_t>(begin + i)) : 0;
      found[i] = codes.code(scale.ratio(x[begin + i]), word, stochastic);
    }
    if (scale.inverse == 0) __builtin_memset(found, zero, most);
    if (!halves) {
      __builtin_memcpy(y + begin, found, static_cast<std::size_t>(length));
    } else {
      if (length % 2 != 0) found[length] = 0;
      for (std::int64_t i = 0; i < (length + 1) / 2; ++i)
        y[begin / 2 + i] = static_cast<std::uint8_t>(found[2 * i] << 4 | found[2 * i + 1]);
    }
  });
}

template <class T>
void encode(const BlockCode& code, const T* x, std::byte* y, std::int64_t count, Draw draw) {
  const bool stochastic = draw.key != 0 && code.kind <= BlockKind::fp8, halves = code.kind == BlockKind::nf4;
  auto* to = reinterpret_cast<std::uint8_t*>(y);
  with_codes(code.kind, [&](const auto& codes) FSDP_INLINE_LAMBDA {
    std::int64_t block = draw.first / code.elements;
    for (std::int64_t at = 0; at < count; at += code.elements, ++block) {
      const std::int64_t length = count - at < code.elements ? count - at : code.elements;
      const std::int64_t bytes = halves ? (length + 1) / 2 : length;
      const std::uint32_t row = dropout_row(draw.key, block);
      if (stochastic)
        encode_block<true>(codes, halves, x + at, to, length, row);
      else
        encode_block<false>(codes, halves, x + at, to, length, row);
      for (to += 4 + bytes; (to - reinterpret_cast<std::uint8_t*>(y)) % 4 != 0;) *to++ = 0;
    }
  });
}

template <bool accumulate, class T>
FSDP_INLINE void decode_blocks(const BlockCode& code, const std::byte* x, T* y, std::int64_t count) {
  const bool halves = code.kind == BlockKind::nf4;
  const auto* from = reinterpret_cast<const std::uint8_t*>(x);
  with_codes(code.kind, [&](const auto& codes) FSDP_INLINE_LAMBDA {
    for (std::int64_t at = 0; at < count; at += code.elements) {
      const std::int64_t length = count - at < code.elements ? count - at : code.elements;
      float scale = 0;
      __builtin_memcpy(&scale, from, 4);
      from += 4;
      for_ranges(length, [&](std::int64_t begin, std::int64_t end) FSDP_INLINE_LAMBDA {
        std::uint8_t unpacked[most];
        const std::uint8_t* read = from + begin;
        if (halves) {
          for (std::int64_t i = 0; i < (end - begin + 1) / 2; ++i) {
            const std::uint8_t both = from[begin / 2 + i];
            unpacked[2 * i] = both >> 4;
            unpacked[2 * i + 1] = both & 15;
          }
          read = unpacked;
        }
        T* const to = y + at + begin;
        for (std::int64_t i = 0; i < end - begin; ++i) {
          const float value = codes.value(read[i]) * scale;
          put(to + i, accumulate ? to[i] + value : value);
        }
      });
      from += ((halves ? (length + 1) / 2 : length) + 3) / 4 * 4;
    }
  });
}

template <class T>
void decode(const BlockCode& code, const std::byte* x, T* y, std::int64_t count, bool accumulate) {
  if (accumulate)
    decode_blocks<true>(code, x, y, count);
  else
    decode_blocks<false>(code, x, y, count);
}

/// Moments of a range of at most `most` elements in float.
struct Moments {
  float first[most], second[most];
};

/// Steps a range of weights and their decoded moments.
FSDP_INLINE void step_range(const AdamWFactors& factors, Moments& moments, float* main, const float* gradient,
                            bf16* model, std::int64_t count) {
  const AdamWFactors f = factors;
  for (std::int64_t i = 0; i < count; ++i) adamw(f, main[i], moments.first[i], moments.second[i], gradient[i]);
  for (std::int64_t i = 0; model != nullptr && i < count; ++i) put(model + i, main[i]);
}

void dynamic8_adamw(const AdamWFactors& factors, const CodedRange& range) {
  constexpr BlockCodes<BlockKind::dynamic8> first_codes{signed_map};
  constexpr BlockCodes<BlockKind::dynamic8_unsigned> second_codes{{unsigned_map}};
  auto* first = reinterpret_cast<std::uint8_t*>(range.first_moment);
  auto* second = reinterpret_cast<std::uint8_t*>(range.second_moment);
  Moments moments;
  for (std::int64_t at = 0; at < range.count; at += most, first += 4 + most, second += 4 + most) {
    const std::int64_t count = range.count - at < most ? range.count - at : most;
    float scale = 0, second_scale = 0;
    __builtin_memcpy(&scale, first, 4);
    __builtin_memcpy(&second_scale, second, 4);
    for (std::int64_t i = 0; i < count; ++i) moments.first[i] = first_codes.value(first[4 + i]) * scale;
    for (std::int64_t i = 0; i < count; ++i) moments.second[i] = second_codes.value(second[4 + i]) * second_scale;
    step_range(factors, moments, range.main + at, range.gradient + at,
               range.model == nullptr ? nullptr : range.model + at, count);
    const BlockScale m(largest_of(moments.first, count), 1), v(largest_of(moments.second, count), 1);
    __builtin_memcpy(first, &m.scale, 4);
    __builtin_memcpy(second, &v.scale, 4);
    for (std::int64_t i = 0; i < count; ++i) first[4 + i] = first_moment_byte(first_codes, m, moments.first[i]);
    for (std::int64_t i = 0; i < count; ++i) second[4 + i] = second_moment_byte(second_codes, v, moments.second[i]);
  }
}

/// Random numbers are those of rows of 256 elements of the whole tensor, as for blocks.
void bf16_adamw(const AdamWFactors& factors, const CodedRange& range, Draw draw) {
  auto* const first = reinterpret_cast<bf16*>(range.first_moment);
  auto* const second = reinterpret_cast<bf16*>(range.second_moment);
  const bool stochastic = draw.key != 0;
  Moments moments;
  for (std::int64_t at = 0; at < range.count;) {
    const std::int64_t index = draw.first + at, column = index % most;
    const std::int64_t count = range.count - at < most - column ? range.count - at : most - column;
    const std::uint32_t row = dropout_row(draw.key, index / most);
    for (std::int64_t i = 0; i < count; ++i) moments.first[i] = first[at + i];
    for (std::int64_t i = 0; i < count; ++i) moments.second[i] = second[at + i];
    step_range(factors, moments, range.main + at, range.gradient + at,
               range.model == nullptr ? nullptr : range.model + at, count);
    for (std::int64_t i = 0; i < count; ++i) put(first + at + i, moments.first[i]);
    for (std::int64_t i = 0; i < count; ++i)
      second[at + i].bits =
          bf16_bits(moments.second[i], dropout_word(row, static_cast<std::uint32_t>(column + i)), stochastic);
    at += count;
  }
}

template <class T>
constexpr CodecFunctions<T> codec_functions = {.encode = encode<T>, .decode = decode<T>};

}  // namespace

FSDP_EXPORT_KERNELS(CodecKernels, {{codec_functions<float>, codec_functions<bf16>}, dynamic8_adamw, bf16_adamw})

}  // namespace fsdp::device::cpu
