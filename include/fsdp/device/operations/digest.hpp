// SPDX-License-Identifier: Apache-2.0
/// @file
/// Digests of tensors, by which runs and ranks compare what they computed.
#pragma once

#include <cstdint>
#include <string_view>
#include <tuple>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/operation.hpp>

namespace fsdp::device {

/// Returns the key of a tensor's digest: odd, so that no change of a single element can be lost.
constexpr std::uint64_t digest_key(std::string_view name) { return mixed(hashed(hash_seed, name)) | 1; }

/// Adds the digest of x to sum[0], modulo 2^64: the sum over its elements of key * (2 * index + 1) * bits, where the
/// index counts from the beginning of the whole tensor, of which x is the part that starts at element `begin`. So the
/// digests of a tensor's parts add up to that of the whole, however it is cut and in whatever order.
template <class T>
struct AddDigest {
  static constexpr std::string_view name = "digest";
  static constexpr std::int64_t chunk = 16384;  ///< elements that a thread takes at a time

  Tensor<const T> x = {};
  std::int64_t begin = 0;
  std::uint64_t key = 1;
  Tensor<std::int64_t> sum = {};  // [1]

  /// Returns the number of partial sums.
  std::int64_t chunks() const { return ceil_divide(x.numel(), chunk); }
  auto tensors() const { return std::tie(x, sum); }
  Cost cost() const { return {.bytes = x.bytes()}; }
  void check() const { require(x.contiguous() && sum.numel() >= 1, "digest: needs a contiguous tensor and a sum"); }
};

}  // namespace fsdp::device
