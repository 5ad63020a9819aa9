// SPDX-License-Identifier: Apache-2.0
// A codec and its operations: 8-bit codes between the smallest and the largest element of each block.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/precision/codec.hpp>

namespace mine {

using fsdp::Tensor;
using fsdp::device::Cost;
using fsdp::device::Cpu;

/// Bytes of `count` elements: per block its smallest element and a step, two floats, then codes, rounded up to 4 bytes.
constexpr std::int64_t affine_bytes(std::int64_t count, std::int64_t block) {
  const std::int64_t rest = count % block;
  return count / block * (8 + block) + (rest > 0 ? 8 + (rest + 3) / 4 * 4 : 0);
}

/// y = the codes of x, to nearest.
template <class T>
struct EncodeAffine {
  static constexpr std::string_view name = "encode_affine";
  std::int64_t block = 64;
  Tensor<const T> x = {};
  Tensor<std::byte> y = {};
  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const {
    fsdp::require(y.numel() == affine_bytes(x.numel(), block), name, ": ", x.numel(), " elements in ", y.numel(),
                  " bytes");
  }
};

template <class T>
void run(Cpu::Stream&, const EncodeAffine<T>& op) {
  for (std::int64_t at = 0; at < op.x.numel(); at += op.block) {
    const std::int64_t count = std::min(op.block, op.x.numel() - at);
    const T* const x = op.x.data() + at;
    std::byte* const y = op.y.data() + affine_bytes(at, op.block);
    float ends[2] = {x[0], 0};  // the smallest element; then the step between codes
    float largest = x[0];
    bool finite = true;
    for (std::int64_t i = 0; i < count; ++i) {
      ends[0] = std::min(ends[0], static_cast<float>(x[i]));
      largest = std::max(largest, static_cast<float>(x[i]));
      finite = finite && std::isfinite(static_cast<float>(x[i]));
    }
    ends[1] = finite ? (largest - ends[0]) / 255 : std::numeric_limits<float>::quiet_NaN();
    std::memset(y, 0, static_cast<std::size_t>(affine_bytes(count, op.block)));
    std::memcpy(y, ends, sizeof ends);
    if (ends[1] > 0)
      for (std::int64_t i = 0; i < count; ++i)
        y[8 + i] = static_cast<std::byte>(std::clamp(std::lround((x[i] - ends[0]) / ends[1]), 0L, 255L));
  }
}

/// y = the values of x, or y += them.
template <class T>
struct DecodeAffine {
  static constexpr std::string_view name = "decode_affine";
  std::int64_t block = 64;
  Tensor<const std::byte> x = {};
  Tensor<T> y = {};
  bool accumulate = false;
  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
};

template <class T>
void run(Cpu::Stream&, const DecodeAffine<T>& op) {
  for (std::int64_t i = 0; i < op.y.numel(); ++i) {
    const std::byte* const block = op.x.data() + affine_bytes(i / op.block * op.block, op.block);
    float ends[2];
    std::memcpy(ends, block, sizeof ends);
    const float value = ends[0] + ends[1] * static_cast<float>(block[8 + i % op.block]);
    op.y[i] = T(op.accumulate ? op.y[i] + value : value);
  }
}

/// The codec: a block's size, counts of bytes, a name, and which operations encode and decode.
template <std::int64_t N>
struct Affine {
  static constexpr std::int64_t block = N;
  static constexpr double largest_error =
      1.0 / 255;  // half a step; all elements are within twice the largest magnitude
  std::int64_t bytes(std::int64_t count) const { return affine_bytes(count, N); }
  std::string text() const { return "mine:affine/" + std::to_string(N); }

  template <class Stream, class T>
  void encode(Stream& stream, Tensor<const T> x, Tensor<std::byte> y, fsdp::Draw) const {
    fsdp::device::enqueue(stream, EncodeAffine<T>{.block = N, .x = x, .y = y});
  }
  template <class Stream, class T>
  void decode(Stream& stream, Tensor<const std::byte> x, Tensor<T> y) const {
    fsdp::device::enqueue(stream, DecodeAffine<T>{.block = N, .x = x, .y = y});
  }
  template <class Stream>
  void add_decoded(Stream& stream, Tensor<const std::byte> x, Tensor<float> y) const {
    fsdp::device::enqueue(stream, DecodeAffine<float>{.block = N, .x = x, .y = y, .accumulate = true});
  }
};
static_assert(fsdp::check_codec<Affine<64>>());

}  // namespace mine
