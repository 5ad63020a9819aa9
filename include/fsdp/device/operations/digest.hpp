// SPDX-License-Identifier: Apache-2.0
/// @file
/// Digests of tensors, for comparing the results of runs and ranks.
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

/// Returns the key of a tensor's digest: it is odd, so that every change of a single element changes the digest.
constexpr std::uint64_t digest_key(std::string_view name) { return mixed(hashed(hash_seed, name)) | 1; }

/// Adds the digest of x to sum[0], modulo 2^64: the sum of key * (2 * index + 1) * bits over the elements of x. `index`
/// counts from the beginning of the whole tensor, of which x is the part that starts at element `begin`. Therefore the
/// digests of a tensor's parts add up to the digest of the whole, however it is partitioned and in whatever order they
/// are added.
template <class T>
struct AddDigest {
  static constexpr std::string_view name = "digest";
  static constexpr std::int64_t chunk = 16384;  ///< number of elements that a thread processes at a time

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
