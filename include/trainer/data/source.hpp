// SPDX-License-Identifier: Apache-2.0
/// @file
/// The concept of a data source: it copies numbered samples, some of them held out, into batches in host memory.
///
/// Not here: which samples a step uses, and each rank's share of them (tessera/trainer/data/sampler.hpp).
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include <tessera/fsdp/core/has_member.hpp>

namespace fsdp::data {

/// Allocates zeroed host memory; pinned if the device uses pinned memory.
using Allocate = std::shared_ptr<std::byte> (*)(std::int64_t bytes);

/// A source of batches. Samples [0, training()) are for training; [training(), training() + validation()) are held out.
///
/// A `Storage` is the memory of one micro-batch. `fill` copies samples into it and returns a Batch that views it.
/// `fill` takes at most as many samples as the storage has sequences; the remaining sequences get targets that are
/// ignored. It throws InputError if the data cannot be used.
///
/// Optional: `order(seed)` returns an Order (tessera/trainer/data/sampler.hpp) for samples that are not drawn evenly.
/// `identity()` returns a line that differs if the samples do: ranks compare it, and so does a resumed run.
template <class S>
concept Source = requires(const S source, typename S::Storage& storage, std::span<const std::int64_t> samples,
                          std::int64_t number, Allocate allocate) {
  typename S::Batch;
  { source.training() } -> std::same_as<std::int64_t>;
  { source.validation() } -> std::same_as<std::int64_t>;
  { source.sequence_length() } -> std::same_as<std::int64_t>;
  { source.storage(number, allocate) } -> std::same_as<typename S::Storage>;  // storage for `number` sequences
  { source.fill(storage, samples) } -> std::same_as<typename S::Batch>;
  { source.text() } -> std::same_as<std::string>;  // a description for the user
};

namespace detail {
FSDP_HAS_MEMBER(identity)
FSDP_HAS_MEMBER(skipped_binary)
}  // namespace detail

/// Checks that a type is a source; the compile error reports what is missing. Call it where the type is first used.
template <class S>
consteval bool check_source() {
  static_assert(
      requires {
        typename S::Batch;
        typename S::Storage;
      },
      "fsdp: a source of batches lacks the type Batch (what it yields) or Storage (the memory of one); see "
      "tessera/trainer/data/source.hpp");
  static_assert(
      Source<S>,
      "fsdp: a source of batches lacks one of training(), validation(), sequence_length(), storage(sequences, "
      "allocate), fill(storage, samples), text(), all const; see tessera/trainer/data/source.hpp");
  static_assert(
      !detail::has_identity<S>() ||
          requires(const S source) {
            { source.identity() } -> std::same_as<std::string>;
          },
      "fsdp: a source of batches has an identity that is no std::string identity() const, so that ranks with other "
      "data and the same text() would not be noticed");
  static_assert(
      !detail::has_skipped_binary<S>() ||
          requires(const S source) {
            { source.skipped_binary() } -> std::convertible_to<std::int64_t>;
          },
      "fsdp: a source of batches has a skipped_binary that is no std::int64_t skipped_binary() const");
  return Source<S>;
}

}  // namespace fsdp::data
