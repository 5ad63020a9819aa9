// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where a model's batches come from: numbered samples, some of them held out, and host memory that is filled with
/// some.
///
/// Not here: which samples a step uses, and which of them are a rank's (data/sampler.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fsdp::data {

/// Zeroed host memory of so many bytes; pinned where the device wants it.
using Allocate = std::shared_ptr<std::byte> (*)(std::int64_t bytes);

/// Samples [0, training()) are trained on, [training(), training() + validation()) are held out. A `Storage` holds one
/// micro-batch; the Batch that `fill` returns views it. `fill` takes at most as many samples as the storage has
/// sequences; what is missing is there with targets that do not count. It throws InputError where data cannot be used.
/// A source may have `order(seed)`, an Order (data/sampler.hpp), where samples are not drawn evenly, and `identity()`,
/// a line that differs where its samples do: ranks compare it, and resuming does.
template <class S>
concept Source = requires(const S source, typename S::Storage& storage, std::span<const std::int64_t> samples,
                          std::int64_t number, Allocate allocate) {
  typename S::Batch;
  { source.training() } -> std::same_as<std::int64_t>;
  { source.validation() } -> std::same_as<std::int64_t>;
  { source.sequence_length() } -> std::same_as<std::int64_t>;
  { source.storage(number, allocate) } -> std::same_as<typename S::Storage>;  // of so many sequences
  { source.fill(storage, samples) } -> std::same_as<typename S::Batch>;
  { source.text() } -> std::same_as<std::string>;  // what it is made of, for people
};

/// Says in words what a type lacks to be a source of batches. Call it where the type is first used.
template <class S>
consteval bool check_source() {
  static_assert(
      requires {
        typename S::Batch;
        typename S::Storage;
      },
      "fsdp: a source of batches lacks the type Batch (what it yields) or Storage (the memory of one); see "
      "data/source.hpp");
  static_assert(
      Source<S>,
      "fsdp: a source of batches lacks one of training(), validation(), sequence_length(), storage(sequences, "
      "allocate), fill(storage, samples), text(), all const; see data/source.hpp");
  return Source<S>;
}

}  // namespace fsdp::data
