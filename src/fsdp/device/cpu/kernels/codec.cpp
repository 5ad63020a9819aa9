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
    case BlockKind::dynamic8_unsigned: return body(BlockCodes<BlockKind::dynamic8_unsigned>{unsigned_map});
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

/// Returns table[index mod 8] in each lane.
FSDP_INLINE Floats from_table(const float* table, Integers index) {
#if defined(__AVX512F__)
  const __m512 both = _mm512_maskz_broadcast_f32x8(0xffff, _mm256_loadu_ps(table));
  return reinterpret_cast<Floats>(_mm512_maskz_permutexvar_ps(0xffff, reinterpret_cast<__m512i>(index), both));
#elif defined(__AVX2__)
  return reinterpret_cast<Floats>(_mm256_permutevar8x32_ps(_mm256_loadu_ps(table), reinterpret_cast<__m256i>(index)));
#else
  Floats found = {};
  for (int lane = 0; lane < lanes; ++lane) found[lane] = table[index[lane] & 7];
  return found;
#endif
}

FSDP_INLINE Integers load_bytes(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return reinterpret_cast<Integers>(
      _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#elif defined(__AVX2__)
  return reinterpret_cast<Integers>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#else
  Integers found = {};
  for (int lane = 0; lane < lanes; ++lane) found[lane] = from[lane];
  return found;
#endif
}
FSDP_INLINE void store_bytes(std::uint8_t* to, Integers bytes) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm512_maskz_cvtepi32_epi8(0xffff, reinterpret_cast<__m512i>(bytes)));
#else
  for (int lane = 0; lane < lanes; ++lane) to[lane] = static_cast<std::uint8_t>(bytes[lane]);
#endif
}

FSDP_INLINE Integers smaller_of(Integers first, Integers second) {
#if defined(__AVX512F__)  // g++ 12 would keep comparisons as registers instead of masks
  return reinterpret_cast<Integers>(
      _mm512_maskz_min_epi32(0xffff, reinterpret_cast<__m512i>(first), reinterpret_cast<__m512i>(second)));
#else
  const Integers condition = first < second;
  return (condition & first) | (~condition & second);
#endif
}

// DynamicMap's functions on registers, with the same arithmetic: the compiler would not keep the tables in registers.

FSDP_INLINE Integers ranks_of(const DynamicMap& map, Floats x) {
  x = larger_of(x, broadcast(DynamicMap::least));
  const Integers before = ((reinterpret_cast<Integers>(x) >> 23) - (127 - 23)) * 19 >> 6;
  const Integers decade = before - (x > from_table(map.next, before));
  const Integers last = ((Integers{} + 2) << (decade + map.is_unsigned)) - 1;
  const Floats position = x * from_table(map.slope, decade);
  const Integers at = __builtin_convertvector(position + from_table(map.offset, decade), Integers);
  return smaller_of(at, last) - map.is_unsigned;
}
FSDP_INLINE Floats values_of(const DynamicMap& map, Integers rank) {
  const Floats middle = __builtin_convertvector(rank + map.is_unsigned, Floats) + 0.5f;
  const Integers power = reinterpret_cast<Integers>(middle) & 0x7f800000;
  const Integers decade = (power >> 23) - 127 - map.is_unsigned;
  const Floats value = (middle - reinterpret_cast<Floats>(power)) * from_table(map.part, decade);
  return select(rank > 0, value + from_table(map.start, decade), Floats{});
}

constexpr std::int32_t sign_bit = -0x7fffffff - 1;
FSDP_INLINE Integers codes_of(const BlockCodes<BlockKind::int8>&, Floats x) {  // in the low bytes
  return reinterpret_cast<Integers>(larger_of(smaller_of(x, broadcast(127)), broadcast(-127)) + 0x1.8p23f);
}
FSDP_INLINE Integers codes_of(const BlockCodes<BlockKind::dynamic8>& codes, Floats x) {
  const Integers bits = reinterpret_cast<Integers>(x), sign = bits >> 31;  // 0 or -1
  const Integers rank = ranks_of(codes.map, reinterpret_cast<Floats>(bits & ~sign_bit));
  return 127 + ((smaller_of(rank, 128 + sign) ^ sign) - sign);
}
FSDP_INLINE Integers codes_of(const BlockCodes<BlockKind::dynamic8_unsigned>& codes, Floats x) {
  return ranks_of(codes.map, x);
}
FSDP_INLINE Floats values_of(const BlockCodes<BlockKind::dynamic8>& codes, Integers code) {
  const Integers from_zero = code - 127, sign = from_zero >> 31;
  const Floats magnitude = values_of(codes.map, (from_zero ^ sign) - sign);
  return reinterpret_cast<Floats>(reinterpret_cast<Integers>(magnitude) | (from_zero & sign_bit));
}
FSDP_INLINE Floats values_of(const BlockCodes<BlockKind::dynamic8_unsigned>& codes, Integers code) {
  return values_of(codes.map, code);
}

FSDP_INLINE Floats values_of(const BlockCodes<BlockKind::nf4>& codes, Integers code) {
  return select(code > 7, from_table(codes.map.values + 8, code), from_table(codes.map.values, code));
}

/// Calls step(begin, end) for a block's ranges of at most `most` elements.
template <class Step>
FSDP_INLINE void for_ranges(std::int64_t count, Step step) {
  for (std::int64_t begin = 0; begin < count; begin += most) step(begin, count - begin < most ? count : begin + most);
}

/// Decodes a range.
template <class Codes>
FSDP_INLINE void decode_range(const Codes& codes, const std::uint8_t* x, float* y, float scale, std::int64_t count) {
  if constexpr (requires { values_of(codes, Integers{}); }) {
    std::uint8_t last[lanes] = {};
    for_vectors(count, [&](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      const bool whole = size_of(part) == size_of(Whole{});
      if (!whole) __builtin_memcpy(last, x + i, size_of(part));
      store(y + i, values_of(codes, load_bytes(whole ? x + i : last)) * scale, part);
    });
  } else {
    for (std::int64_t i = 0; i < count; ++i) y[i] = codes.value(x[i]) * scale;
  }
}

template <bool stochastic, class Codes, class T>
FSDP_INLINE void encode_block(const Codes& codes, bool halves, const T* x, std::uint8_t* y, std::int64_t count,
                              std::uint32_t row) {
  const BlockScale scale(largest_of(x, count), Codes::top);
  __builtin_memcpy(y, &scale.scale, 4);
  y += 4;
  for_ranges(count, [&](std::int64_t begin, std::int64_t end) FSDP_INLINE_LAMBDA {
    std::uint8_t found[most];
    const std::int64_t length = end - begin;
    if (scale.inverse == 0) {
      __builtin_memset(found, halves ? 7 : 0, most);
    } else if constexpr (!stochastic && requires { codes_of(codes, Floats{}); }) {
      for_vectors(length, [&](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
        store_bytes(found + i, codes_of(codes, load(x + begin + i, part) * scale.lift * scale.inverse));
      });
    } else {
      for (std::int64_t i = 0; i < length; ++i) {
        const std::uint32_t word = stochastic ? dropout_word(row, static_cast<std::uint32_t>(begin + i)) : 0;
        found[i] = codes.code(scale.ratio(x[begin + i]), word, stochastic);
      }
    }
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

template <class T>
void decode(const BlockCode& code, const std::byte* x, T* y, std::int64_t count, bool accumulate) {
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
        if constexpr (sizeof(T) == sizeof(float))
          if (!accumulate) return decode_range(codes, read, to, scale, end - begin);
        float values[most];
        decode_range(codes, read, values, scale, end - begin);
        for (std::int64_t i = 0; i < end - begin; ++i) put(to + i, accumulate ? to[i] + values[i] : values[i]);
      });
      from += ((halves ? (length + 1) / 2 : length) + 3) / 4 * 4;
    }
  });
}

/// Moments of at most `most` elements in float.
struct Moments {
  float first[most], second[most];
};

/// Steps the weights of a range from element `at`, and their decoded moments.
FSDP_INLINE void step_part(const AdamWFactors& factors, Moments& moments, const CodedRange& range, std::int64_t at,
                           std::int64_t count) {
  const AdamWFactors f = factors;
  float* const main = range.main + at;
  const float* const gradient = range.gradient + at;
  for (std::int64_t i = 0; i < count; ++i) adamw(f, main[i], moments.first[i], moments.second[i], gradient[i]);
  for (std::int64_t i = 0; range.model != nullptr && i < count; ++i) put(range.model + at + i, main[i]);
}

/// Encodes a moment of a block; `guarded` corrects its codes (see block_codes.hpp).
template <class Codes, class Guard>
FSDP_INLINE void encode_moment(const Codes& codes, const float* moment, std::uint8_t* y, std::int64_t count,
                               Guard guarded) {
  const BlockScale scale(largest_of(moment, count), 1);
  __builtin_memcpy(y, &scale.scale, 4);
  std::uint8_t found[most] = {};
  if (scale.inverse > 0)
    for_vectors(count, [&](std::int64_t i, auto part) FSDP_INLINE_LAMBDA {
      const Floats value = load(moment + i, part);
      store_bytes(found + i, guarded(codes_of(codes, value * scale.lift * scale.inverse), value));
    });
  __builtin_memcpy(y + 4, found, static_cast<std::size_t>(count));
}

void dynamic8_adamw(const AdamWFactors& factors, const CodedRange& range) {
  constexpr BlockCodes<BlockKind::dynamic8> first_codes{signed_map};
  constexpr BlockCodes<BlockKind::dynamic8_unsigned> second_codes{unsigned_map};
  auto* first = reinterpret_cast<std::uint8_t*>(range.first_moment);
  auto* second = reinterpret_cast<std::uint8_t*>(range.second_moment);
  Moments moments;
  for (std::int64_t at = 0; at < range.count; at += most, first += 4 + most, second += 4 + most) {
    const std::int64_t count = range.count - at < most ? range.count - at : most;
    float scale = 0, second_scale = 0;
    __builtin_memcpy(&scale, first, 4);
    __builtin_memcpy(&second_scale, second, 4);
    decode_range(first_codes, first + 4, moments.first, scale, count);
    decode_range(second_codes, second + 4, moments.second, second_scale, count);
    step_part(factors, moments, range, at, count);
    encode_moment(first_codes, moments.first, first, count, [](Integers code, Floats moment) FSDP_INLINE_LAMBDA {
      return code + ((code == 127) & (moment < 0.0f));
    });
    encode_moment(second_codes, moments.second, second, count, [](Integers code, Floats moment) FSDP_INLINE_LAMBDA {
      return code - ((code == 0) & (moment > 0.0f));
    });
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
    step_part(factors, moments, range, at, count);
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
