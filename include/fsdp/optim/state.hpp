// SPDX-License-Identifier: Apache-2.0
/// @file
/// The states of an optimizer: name and format (StateSpec), and a view of one state of a piece of a parameter (State).
///
/// A format is a codec (tessera/fsdp/precision/codec.hpp). The bytes of a state of a whole parameter are those of its
/// pieces, one after the other, so that checkpoints do not depend on ranks: pieces are cut at multiples of the codec's
/// block. States are bytes of zero at first, which every codec must decode to zeros.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/lists.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/precision/codec.hpp>

namespace fsdp::optim {

/// A codec without its type. `state_format<Codec>` is the format of a codec.
struct StateFormat {
  std::string (*text)();                      ///< the codec's name in checkpoints, such as "dynamic8/256"
  DType type;                                 ///< element type: f32 or bf16 for Plain, u8 for bytes of other codecs
  std::int64_t block;                         ///< number of elements that are encoded together
  std::int64_t (*bytes)(std::int64_t count);  ///< number of bytes of `count` elements
  /// Convert in host memory. `encode` rounds to nearest.
  /// @{
  void (*decode)(Tensor<const std::byte> from, Tensor<float> to);
  void (*encode)(Tensor<const float> from, Tensor<std::byte> to);
  /// @}

  friend bool operator==(const StateFormat& a, const StateFormat& b) { return &a == &b || a.text() == b.text(); }
};

namespace detail {

/// Calls f(stream) with a stream of the host for codecs, which need no memory from its arena.
template <class F>
void on_host_stream(const F& f) {
  device::Cpu::Arena none;
  device::Cpu::Stream stream(none, 1);
  f(stream);
}

template <class C>
constexpr DType type_of_codec() {
  if constexpr (std::is_same_v<C, Plain<float>>) return DType::f32;
  if constexpr (std::is_same_v<C, Plain<bf16>>) return DType::bf16;
  return DType::u8;
}

template <class C>
struct FormatOf {
  static_assert(check_codec<C>());
  static_assert(std::default_initializable<C>,
                "fsdp: a state's codec is known by its type alone; give it a default constructor");
  static std::string text() { return C{}.text(); }
  static std::int64_t bytes(std::int64_t count) { return C{}.bytes(count); }
  static void decode(Tensor<const std::byte> from, Tensor<float> to) {
    on_host_stream([&](device::Cpu::Stream& stream) { C{}.decode(stream, from, to); });
  }
  static void encode(Tensor<const float> from, Tensor<std::byte> to) {
    on_host_stream([&](device::Cpu::Stream& stream) { C{}.encode(stream, from, to, Draw{}); });
  }
};

}  // namespace detail

/// The format of a codec, which must have a default constructor and overloads for the CPU.
template <class C>
inline constexpr StateFormat state_format{.text = detail::FormatOf<C>::text,
                                          .type = detail::type_of_codec<C>(),
                                          .block = C::block,
                                          .bytes = detail::FormatOf<C>::bytes,
                                          .decode = detail::FormatOf<C>::decode,
                                          .encode = detail::FormatOf<C>::encode};

/// Returns the values of `bytes` in host memory, of `count` elements.
inline std::vector<float> decoded(const StateFormat& format, Tensor<const std::byte> bytes, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  format.decode(bytes, {values.data(), {count}});
  return values;
}

/// Encodes the blocks in which `values` differ from `before`, in host memory. Blocks that follow each other are encoded
/// together.
inline void encode_changed(const StateFormat& format, const float* before, Tensor<const float> values,
                           Tensor<std::byte> bytes) {
  const std::int64_t count = values.numel();
  const auto end_of = [&](std::int64_t begin) { return std::min(begin + format.block, count); };
  const auto changed = [&](std::int64_t begin) {
    return begin < count && !std::equal(before + begin, before + end_of(begin), values.data() + begin);
  };
  for (std::int64_t begin = 0, end = 0; begin < count; begin = end_of(end)) {
    for (end = begin; changed(end);) end = end_of(end);
    const std::int64_t first = format.bytes(begin);
    if (end > begin)
      format.encode({values.data() + begin, {end - begin}}, {bytes.data() + first, {format.bytes(end) - first}});
  }
}

/// Name and format of one of a parameter's states. A name alone is a state of float: `{"momentum"}`.
struct StateSpec {
  std::string_view name;
  const StateFormat* format = &state_format<Plain<float>>;

  /// A state by its name, in float unless `stored` is another format.
  template <class Name>
  requires std::convertible_to<Name, std::string_view>
  constexpr StateSpec(const Name& text, const StateFormat& stored = state_format<Plain<float>>)
      : name(text), format(&stored) {}

  friend bool operator==(const StateSpec& a, const StateSpec& b) { return a.name == b.name && *a.format == *b.format; }
};

/// Returns the bytes of memory of a state of a piece of `count` elements: words, so that pieces of float can follow.
inline std::int64_t resting_bytes(const StateSpec& state, std::int64_t count) {
  return round_up(state.format->bytes(count), sizeof(float));
}

/// A view of one state of a piece of a parameter.
class State {
 public:
  State() = default;
  /// `shape`: the piece's, as of its main weights.
  State(std::byte* data, const Shape& shape, const StateFormat& format)
      : data_(data), shape_(shape), format_(&format) {}
  /// A state of float.
  State(Tensor<float> values) : State(reinterpret_cast<std::byte*>(values.data()), values.shape(), *State().format_) {}

  const StateFormat& format() const { return *format_; }  ///< how its numbers are stored
  const Shape& shape() const { return shape_; }           ///< the piece's shape
  std::int64_t numel() const { return shape_.numel(); }   ///< number of elements
  /// Returns the encoded bytes.
  Tensor<std::byte> bytes() const { return {data_, {format_->bytes(numel())}}; }
  /// Returns the values of a state in format Plain<T>. Throws LogicError for other formats.
  template <class T>
  Tensor<T> as() const {
    require(format_->type == dtype_of<T>(), "optimizer state: its format is ", format_->text(), ", not ",
            Plain<T>().text());
    return {reinterpret_cast<T*>(data_), shape_};
  }
  /// Returns the values of a state of float.
  operator Tensor<float>() const { return as<float>(); }
  /// Returns the part of `shape` from element `begin` on, a multiple of the format's block.
  State part(std::int64_t begin, const Shape& shape) const { return {data_ + format_->bytes(begin), shape, *format_}; }

 private:
  std::byte* data_ = nullptr;
  Shape shape_{0};
  const StateFormat* format_ = &state_format<Plain<float>>;
};

/// Calls f(values, begin) with a state as numbers for digests: those of Plain, or the bytes of other codecs as floats.
/// `first`: index of the state's first element in the parameter; `begin`: index of the first of `values` in the whole
/// state.
template <class F>
void with_words(const State& state, std::int64_t first, const F& f) {
  if (state.format().type == DType::bf16) return f(Tensor<const bf16>(state.as<bf16>()), first);
  constexpr std::int64_t word = sizeof(float);
  const Tensor<std::byte> bytes = state.bytes();
  f(Tensor<const float>(reinterpret_cast<const float*>(bytes.data()), {bytes.numel() / word}),
    state.format().bytes(first) / word);
}

}  // namespace fsdp::optim

// Compiled into the library.
FSDP_LIST(fsdp::optim::State)
