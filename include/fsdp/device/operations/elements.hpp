// SPDX-License-Identifier: Apache-2.0
/// @file
/// Elementwise operations (add, copy, fill, scale), and digests of tensors for comparing the results of runs and
/// ranks.
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

/// y += x.
template <class T>
struct Add {
  static constexpr std::string_view name = "add";

  Tensor<const T> x = {};
  Tensor<T> y = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + 2 * y.bytes()}; }
  void check() const { require_same_shape(name, x, y); }
};

/// y = x, rounded if Y is narrower than X.
template <class X, class Y = X>
struct Copy {
  static constexpr std::string_view name = "copy";

  Tensor<const X> x = {};
  Tensor<Y> y = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + y.bytes()}; }
  void check() const { require_same_shape(name, x, y); }
};

/// y = value.
template <class T>
struct Fill {
  static constexpr std::string_view name = "fill";

  Tensor<T> y = {};
  float value = 0;

  auto tensors() const { return std::tie(y); }
  Cost cost() const { return {.bytes = y.bytes()}; }
};

/// Enqueues x = 0 for integers of eight bytes, as doubles: both represent zero by the same bits.
template <class Stream>
void clear(Stream& stream, const Tensor<std::int64_t>& x) {
  enqueue(stream, Fill<double>{.y = {reinterpret_cast<double*>(x.data()), x.shape()}, .value = 0.0f});
}

/// Random selection of the elements of a matrix that are dropped: a hash of `key` and of the element's position in the
/// whole matrix, of which this matrix may be a part. Therefore tiles, ranks and the backward pass drop the same
/// elements.
struct Dropout {
  float rate = 0;  ///< probability that an element is dropped, in [0, 1); 0: no dropout
  std::uint64_t key = 0;
  std::int64_t first_row = 0, first_column = 0;  ///< position at which this part begins in the whole matrix
};

/// y = factor * x, or y += factor * x; y may alias x. With dropout (Srivastava et al. 2014), dropped elements of x are
/// replaced by 0, and the others are multiplied by 1 / (1 - rate).
template <class X, class Y = X>
struct Scale {
  static constexpr std::string_view name = "scale";

  Tensor<const X> x = {};
  Tensor<Y> y = {};
  float factor = 1;
  Write write = Write::overwrite;
  Dropout dropout = {};

  auto tensors() const { return std::tie(x, y); }
  Cost cost() const { return {.bytes = x.bytes() + (write == Write::accumulate ? 2 : 1) * y.bytes()}; }
  void check() const {
    require_same_shape(name, x, y);
    require(dropout.rate >= 0 && dropout.rate < 1, "scale: a dropout of ", dropout.rate);
  }
};

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
