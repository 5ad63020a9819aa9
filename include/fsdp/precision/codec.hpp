// SPDX-License-Identifier: Apache-2.0
/// @file
/// Codecs: numbers in blocks encoded as bytes, for optimizer states and messages.
///
/// A codec is a value. It has
/// - `static constexpr std::int64_t block`: number of elements that are encoded together; 1 if each is on its own;
/// - `bytes(count)`: number of bytes of `count` elements, a multiple of 4 for each block of a codec with blocks, the
///   last included. The bytes of a tensor are those of its parts, one after the other, if the parts are cut at
///   multiples of `block`. Bytes of zero, which new states are, must decode to zeros;
/// - `text()`: its name with its block, in flags and checkpoints, such as "int8/256";
/// - `encode(stream, x, y, draw)`, `decode(stream, x, y)` and `add_decoded(stream, x, y)`, which enqueue operations for
///   elements in float and bf16. A block with an element that is not finite must decode to NaN throughout, so that
///   every rank skips the same steps.
/// It may have `static constexpr double largest_error`: the largest error of an element when it is rounded to nearest,
/// relative to the largest magnitude of its block, which the kit checks.
/// To add one, write a struct with these members and, unless it combines our operations, an operation of yours
/// (tessera/fsdp/device/operation.hpp); test it with tessera/fsdp/testing/codec.hpp.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // must be included before all others

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operations/codec.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>

namespace fsdp {

using device::Draw;

namespace detail {

/// Stands for any device's stream in checks, where functions are not called.
struct AnyStream {};

template <class C>
concept HasBlock = requires {
  typename std::integral_constant<std::int64_t, C::block>;
}
&&(C::block > 0);
template <class C>
concept HasBytes = requires(const C& codec, std::int64_t count) {
  { codec.bytes(count) } -> std::same_as<std::int64_t>;
};
template <class C>
concept HasText = requires(const C& codec) {
  { codec.text() } -> std::same_as<std::string>;
};
template <class C, class Stream, class T>
concept Encodes = requires(const C& codec, Stream& stream, Tensor<const T> x, Tensor<std::byte> y, Draw draw) {
  codec.encode(stream, x, y, draw);
};
template <class C, class Stream, class T>
concept Decodes = requires(const C& codec, Stream& stream, Tensor<const std::byte> x, Tensor<T> y) {
  codec.decode(stream, x, y);
};
template <class C, class Stream>
concept AddsDecoded = requires(const C& codec, Stream& stream, Tensor<const std::byte> x, Tensor<float> y) {
  codec.add_decoded(stream, x, y);
};

}  // namespace detail

/// A codec: see the head of this file. `Stream`: a device's stream, for a codec that is not written for all.
template <class C, class Stream = detail::AnyStream>
concept Codec = std::copyable<C> && detail::HasBlock<C> && detail::HasBytes<C> && detail::HasText<C> &&
    detail::Encodes<C, Stream, float> && detail::Encodes<C, Stream, bf16> && detail::Decodes<C, Stream, float> &&
    detail::Decodes<C, Stream, bf16> && detail::AddsDecoded<C, Stream>;

/// Explains in static_assert messages which requirements of a codec a type does not meet.
template <class C, class Stream = detail::AnyStream>
consteval bool check_codec() {
  using namespace detail;
  static_assert(std::copyable<C>, "fsdp: a codec is a value that optimizers and policies copy; make it copyable");
  static_assert(HasBlock<C>,
                "fsdp: a codec lacks its block, the number of elements that it encodes together; give it static "
                "constexpr std::int64_t block, at least 1");
  static_assert(HasBytes<C>,
                "fsdp: a codec lacks std::int64_t bytes(std::int64_t count) const, by which memory is planned");
  static_assert(HasText<C>,
                "fsdp: a codec lacks std::string text() const, its name with its block in flags and checkpoints");
  static_assert(Encodes<C, Stream, float> && Encodes<C, Stream, bf16>,
                "fsdp: a codec lacks template <class Stream, class T> void encode(Stream&, Tensor<const T> x, "
                "Tensor<std::byte> y, Draw) const for float and bf16");
  static_assert(Decodes<C, Stream, float> && Decodes<C, Stream, bf16>,
                "fsdp: a codec lacks template <class Stream, class T> void decode(Stream&, Tensor<const std::byte> x, "
                "Tensor<T> y) const for float and bf16");
  static_assert(AddsDecoded<C, Stream>,
                "fsdp: a codec lacks template <class Stream> void add_decoded(Stream&, Tensor<const std::byte> x, "
                "Tensor<float> y) const, by which reductions sum");
  return Codec<C, Stream>;
}

/// The values themselves in T, float or bf16. Rounds to nearest, whatever the draw.
template <class T>
struct Plain {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, bf16>, "fsdp: Plain<T> stores float or fsdp::bf16");
  /// The members of a codec; see the head of this file. The operations are Copy and Scale.
  /// @{
  using Value = T;
  static constexpr std::int64_t block = 1;
  static constexpr double largest_error = std::is_same_v<T, float> ? 0 : 0x1p-8;

  constexpr std::int64_t bytes(std::int64_t count) const { return count * static_cast<std::int64_t>(sizeof(T)); }
  std::string text() const { return std::is_same_v<T, float> ? "float" : "bf16"; }

  template <class Stream, class X>
  void encode(Stream& stream, Tensor<const X> x, Tensor<std::byte> y, Draw = {}) const {
    require_bytes(x.numel(), y.numel());
    device::enqueue(stream, device::Copy<X, T>{.x = x, .y = {reinterpret_cast<T*>(y.data()), x.shape()}});
  }
  template <class Stream, class X>
  void decode(Stream& stream, Tensor<const std::byte> x, Tensor<X> y) const {
    device::enqueue(stream, device::Copy<T, X>{.x = values(x, y), .y = y});
  }
  template <class Stream>
  void add_decoded(Stream& stream, Tensor<const std::byte> x, Tensor<float> y) const {
    device::enqueue(stream, device::Scale<T, float>{.x = values(x, y), .y = y, .write = Write::accumulate});
  }
  /// @}
  friend bool operator==(const Plain&, const Plain&) = default;

 private:
  void require_bytes(std::int64_t count, std::int64_t found) const {
    require(found == bytes(count), text(), ": ", count, " elements are ", bytes(count), " bytes, not ", found);
  }
  template <class Y>
  Tensor<const T> values(Tensor<const std::byte> x, Tensor<Y> y) const {
    require_bytes(y.numel(), x.numel());
    return {reinterpret_cast<const T*>(x.data()), y.shape()};
  }
};

namespace detail {

/// Returns half of the largest distance between two values of a kind, relative to the largest magnitude.
constexpr double largest_error_of(device::BlockKind kind) {
  constexpr double errors[] = {0.5 / 127, 16.0 / 448, 0.45 / 64, 0.45 / 128, 0.152};
  return errors[static_cast<int>(kind)];
}

/// A codec of our operations: `K` names the meaning of its codes, `N` is the number of elements per block.
template <device::BlockKind K, std::int64_t N>
struct Blocks {
  static_assert(N > 0 && N % 2 == 0, "fsdp: a codec's block is an even number of elements, such as 256");
  static constexpr std::int64_t block = N;
  static constexpr device::BlockCode code = {.kind = K, .elements = N};
  static constexpr double largest_error = largest_error_of(K);  ///< of rounding to nearest

  constexpr std::int64_t bytes(std::int64_t count) const { return code.bytes(count); }
  std::string text() const {
    constexpr std::string_view names[] = {"int8", "fp8", "dynamic8", "dynamic8u", "nf4"};
    return std::string(names[static_cast<int>(K)]) + "/" + std::to_string(N);
  }

  template <class Stream, class T>
  void encode(Stream& stream, Tensor<const T> x, Tensor<std::byte> y, Draw draw = {}) const {
    device::enqueue(stream, device::EncodeBlocks<T>{.code = code, .x = x, .y = y, .draw = draw});
  }
  template <class Stream, class T>
  void decode(Stream& stream, Tensor<const std::byte> x, Tensor<T> y) const {
    device::enqueue(stream, device::DecodeBlocks<T>{.code = code, .x = x, .y = y});
  }
  template <class Stream>
  void add_decoded(Stream& stream, Tensor<const std::byte> x, Tensor<float> y) const {
    device::enqueue(stream, device::DecodeBlocks<float>{.code = code, .x = x, .y = y, .write = Write::accumulate});
  }
  friend bool operator==(const Blocks&, const Blocks&) = default;
};

}  // namespace detail

/// Integers from -127 to 127 times the largest magnitude / 127; to nearest even, or stochastically by the draw.
template <std::int64_t N = 256>
struct Int8Blocks : detail::Blocks<device::BlockKind::int8, N> {};
/// E4M3 numbers times the largest magnitude / 448; to nearest even, or stochastically by the draw.
template <std::int64_t N = 256>
struct Fp8Blocks : detail::Blocks<device::BlockKind::fp8, N> {};
/// The dynamic map of Dettmers et al. 2022 (8-bit optimizers), to nearest. `Unsigned` for values that are not negative.
template <std::int64_t N = 256, bool Unsigned = false>
struct Dynamic8 : detail::Blocks<Unsigned ? device::BlockKind::dynamic8_unsigned : device::BlockKind::dynamic8, N> {};
/// NormalFloat4 (Dettmers et al. 2023, QLoRA), to nearest.
template <std::int64_t N = 64>
struct Nf4Blocks : detail::Blocks<device::BlockKind::nf4, N> {};

}  // namespace fsdp
