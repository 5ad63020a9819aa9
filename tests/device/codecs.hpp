// SPDX-License-Identifier: Apache-2.0
/// @file
/// Codes in blocks, one element at a time by the definitions that all devices share, and checks of the operations on
/// the ranks of any device: bytes and values must be the same bits.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "src/fsdp/device/block_codes.hpp"
#include "src/fsdp/device/optimizer_step.hpp"
#include "steps.hpp"

namespace fsdp::device::reference {

using Bytes = std::vector<std::byte>;

inline constexpr BlockKind all_kinds[] = {BlockKind::int8, BlockKind::fp8, BlockKind::dynamic8,
                                          BlockKind::dynamic8_unsigned, BlockKind::nf4};

/// Calls f with the BlockCodes of a kind.
template <class F>
auto with_codes(BlockKind kind, const F& f) {
  static constexpr DynamicMap maps[] = {DynamicMap(true), DynamicMap(false)};
  static constexpr NormalFloat4 nf4;
  switch (kind) {
    case BlockKind::int8: return f(BlockCodes<BlockKind::int8>{});
    case BlockKind::fp8: return f(BlockCodes<BlockKind::fp8>{});
    case BlockKind::dynamic8: return f(BlockCodes<BlockKind::dynamic8>{maps[0]});
    case BlockKind::dynamic8_unsigned: return f(BlockCodes<BlockKind::dynamic8_unsigned>{maps[1]});
    default: return f(BlockCodes<BlockKind::nf4>{nf4});
  }
}

/// The values of all codes of a kind, in units of the scale.
inline std::vector<float> values_of_kind(BlockKind kind) {
  return with_codes(kind, [&](const auto& codes) {
    std::vector<float> values;
    for (int code = 0; code < (kind == BlockKind::nf4 ? 16 : 256); ++code)
      if (kind != BlockKind::int8 || code != 128)  // -128 is not used; of fp8 0x7f and 0xff are not
        if (kind != BlockKind::fp8 || code % 128 != 127) values.push_back(codes.value(static_cast<std::uint8_t>(code)));
    return values;
  });
}

/// `count` numbers that tests/golden/make_codecs.py makes too, with exponents spread over 2^-spread.
inline std::vector<float> numbers(std::uint32_t seed, std::int64_t count, std::uint32_t spread) {
  std::vector<float> list;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    const std::uint32_t word = dropout_word(seed, i);
    list.push_back(
        std::ldexp(static_cast<float>(static_cast<std::int32_t>(word)), -31 - static_cast<int>(word % spread)));
  }
  return list;
}

inline Bytes encoded(const BlockCode& code, std::span<const float> x, Draw draw) {
  const auto size = static_cast<std::size_t>(code.elements);
  Bytes bytes;
  for (std::size_t at = 0; at < x.size(); at += size) {
    const auto block = x.subspan(at, std::min(size, x.size() - at));
    std::uint32_t largest = 0;
    for (const float value : block) largest = std::max(largest, bits_of(value) & 0x7fffffffu);
    const std::uint32_t row = dropout_row(draw.key, (draw.first + static_cast<std::int64_t>(at)) / code.elements);
    Bytes own(static_cast<std::size_t>(code.block_bytes(std::ssize(block))));
    with_codes(code.kind, [&](const auto& codes) {
      const BlockScale scale(largest, codes.top);
      std::memcpy(own.data(), &scale.scale, 4);
      for (std::size_t i = 0; i < block.size(); ++i) {
        const bool nf4 = code.kind == BlockKind::nf4;
        int found = codes.code(scale.ratio(block[i]), dropout_word(row, static_cast<std::uint32_t>(i)), draw.key != 0);
        if (scale.inverse == 0) found = nf4 ? 7 : 0;
        own[4 + (nf4 ? i / 2 : i)] |= static_cast<std::byte>(nf4 && i % 2 == 0 ? found << 4 : found);
      }
    });
    bytes.insert(bytes.end(), own.begin(), own.end());
  }
  return bytes;
}

inline std::vector<float> decoded(const BlockCode& code, const Bytes& bytes, std::int64_t count) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* const block = bytes.data() + code.bytes(i / code.elements * code.elements);
    float scale = 0;
    std::memcpy(&scale, block, 4);
    const std::int64_t at = i % code.elements;
    const auto byte = static_cast<int>(block[4 + at * code.bits() / 8]);
    const int found = code.kind != BlockKind::nf4 ? byte : at % 2 == 0 ? byte >> 4 : byte & 15;
    values.push_back(
        with_codes(code.kind, [&](const auto& codes) { return codes.value(static_cast<std::uint8_t>(found)); }) *
        scale);
  }
  return values;
}

template <class T>
std::vector<T> narrowed(const std::vector<float>& values) {
  std::vector<T> list;
  for (const float value : values) list.push_back(T(value));
  return list;
}
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Encodes, decodes and adds blocks of all kinds on a rank, and compares bits with the definitions.
template <class T, class R>
void expect_codes(const Case& c, std::int64_t count, std::int64_t elements) {
  const Shape shape{count};
  for (const BlockKind kind : all_kinds)
    for (const std::uint64_t key : {0u, 1234567u}) {
      const BlockCode code{.kind = kind, .elements = elements};
      SCOPED_TRACE(message(c.text(), ", kind ", static_cast<int>(kind), ", ", count, " in ", elements, ", key ", key));
      std::vector<float> x;
      for (const T value : narrowed<T>(numbers(5, count, 24))) x.push_back(value);
      if (count > 2 * elements) std::fill_n(x.begin() + elements, elements, 0.0f);
      if (count > 1) x.back() = 8192;
      const Draw draw{.key = key, .first = 7 * elements};
      R rank(c);
      const Listed<R, T> on_rank(rank, narrowed<T>(x)), zeros(rank, std::vector<T>(x.size()));
      const Listed<R, std::byte> bytes(rank, Bytes(static_cast<std::size_t>(code.bytes(count)), std::byte{0xee}));
      enqueue(rank.stream, EncodeBlocks<T>{.code = code, .x = on_rank, .y = bytes, .draw = draw});
      const Bytes expected = encoded(code, x, draw);
      EXPECT_TRUE(bytes.back() == expected);
      enqueue(rank.stream, DecodeBlocks<T>{.code = code, .x = bytes, .y = on_rank});
      const std::vector<float> values = decoded(code, expected, count);
      EXPECT_TRUE(same_bits(on_rank.back(), narrowed<T>(values)));
      for (int i = 0; i < 2; ++i)
        enqueue(rank.stream, DecodeBlocks<T>{.code = code, .x = bytes, .y = zeros, .write = Write::accumulate});
      std::vector<float> twice;
      for (const float value : values) twice.push_back(static_cast<float>(T(0.0f + value)) + value);
      EXPECT_TRUE(same_bits(zeros.back(), narrowed<T>(twice)));
    }
}

/// Moments of CodedAdamWStep, encoded as the definitions say.
inline Bytes encoded_moment(MomentForm form, bool is_second, const std::vector<float>& x, Draw draw) {
  if (form == MomentForm::bf16) {
    std::vector<std::uint16_t> halves;
    for (std::int64_t i = 0; i < std::ssize(x); ++i) {
      const std::int64_t index = draw.first + i;
      const std::uint32_t row = dropout_row(draw.key, index / 256);
      halves.push_back(bf16_bits(x[static_cast<std::size_t>(i)],
                                 dropout_word(row, static_cast<std::uint32_t>(index % 256)),
                                 is_second && draw.key != 0));
    }
    const auto* const data = reinterpret_cast<const std::byte*>(halves.data());
    return {data, data + 2 * halves.size()};
  }
  Bytes bytes = encoded(is_second ? second_moment_code : first_moment_code, x, {});
  for (std::size_t i = 0; i < x.size(); ++i) {
    std::byte& byte = bytes[i + 4 + i / 256 * 4];
    const auto code = static_cast<int>(byte);
    float scale = 0;
    std::memcpy(&scale, bytes.data() + i / 256 * 260, 4);
    if (scale > 0) byte = static_cast<std::byte>(is_second ? guarded_second(code, x[i]) : guarded_first(code, x[i]));
  }
  return bytes;
}
inline std::vector<float> decoded_moment(MomentForm form, bool is_second, const Bytes& bytes, std::int64_t count) {
  if (form == MomentForm::dynamic8) return decoded(is_second ? second_moment_code : first_moment_code, bytes, count);
  std::vector<float> values;
  for (std::size_t i = 0; i < bytes.size(); i += 2) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + i, 2);
    values.push_back(bf16::from_bits(half));
  }
  return values;
}

/// Four steps of CodedAdamWStep against the definitions. A GPU's factors may differ in their last bit.
template <class Model, class R>
void expect_coded_adamw(const Case& c, MomentForm form, std::int64_t count) {
  SCOPED_TRACE(message(c.text(), ", form ", static_cast<int>(form), ", ", count, " weights"));
  const AdamWRules rules{.weight_decay = 0.1f};
  const Draw draw{.key = 99, .first = form == MomentForm::bf16 ? 300 : 512};
  R rank(c);
  std::vector<float> w = numbers(1, count, 4);
  const auto bytes = static_cast<std::size_t>(moment_bytes(form, count));
  Bytes first(bytes), second(bytes);
  const Listed<R, float> main(rank, w);
  const Listed<R, std::byte> m(rank, first), v(rank, second);
  const Listed<R, Model> model(rank, std::vector<Model>(w.size()));
  for (int taken = 1; taken <= 5; ++taken) {
    const StepDecision step{.taken = std::min(taken, 4), .lr = 0.01, .gradient_scale = 0.25f, .skipped = taken > 4};
    const std::vector<float> g = numbers(static_cast<std::uint32_t>(taken * 77), count, 20);
    const Listed<R, float> gradient(rank, g);
    const Listed<R, StepDecision> decision(rank, {step});
    constexpr bool has_model = !std::is_same_v<Model, float>;
    enqueue(rank.stream, CodedAdamWStep<Model>{.rules = rules,
                                               .step = decision,
                                               .main = main.view(),
                                               .first_moment = m,
                                               .second_moment = v,
                                               .form = form,
                                               .gradient = gradient,
                                               .model = has_model ? model.view() : Tensor<Model>(),
                                               .draw = draw});
    if (step.skipped == 0) {
      std::vector<float> ms = decoded_moment(form, false, first, count), vs = decoded_moment(form, true, second, count);
      const AdamWFactors factors(rules, step);
      for (std::size_t i = 0; i < w.size(); ++i) adamw(factors, w[i], ms[i], vs[i], g[i]);
      first = encoded_moment(form, false, ms, step_draw(draw, 0, step));
      second = encoded_moment(form, true, vs, step_draw(draw, 0, step));
    }
    EXPECT_TRUE(same_bits(main.back(), w)) << taken;
    EXPECT_TRUE(m.back() == first && v.back() == second) << taken;
    if (has_model) {
      EXPECT_TRUE(same_bits(model.back(), narrowed<Model>(w))) << taken;
    }
  }
}

}  // namespace fsdp::device::reference
