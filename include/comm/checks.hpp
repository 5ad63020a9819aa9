// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares the collective that each rank is about to start, before it starts. Enabled by Options::checks, which must
/// be the same on all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::comm {

/// A description of a collective in a fixed number of bytes, so that one small gather compares all ranks.
struct Fingerprint {
  std::int64_t sequence = 0;
  std::int64_t bytes = 0;
  std::uint64_t sizes = 0;  ///< hash of all counts of all segments
  std::int64_t segments = 0;
  std::int32_t unit = -1;
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::uint8_t variant = 0;  ///< Reduction, Write and SumOrder, or root
  std::array<char, 48> what{};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

Fingerprint fingerprint_of(const Record& record, std::int64_t segments, std::uint64_t sizes, std::uint8_t variant);

/// Throws CollectiveError, the same on every rank, unless all fingerprints are equal. The bytes of an all_to_all are
/// not compared, since each rank counts only its own.
void require_agreement(const Monitor& monitor, std::span<const Fingerprint> by_rank);

/// Gathers all ranks' fingerprints with `gather` (an all-gather of bytes), then calls require_agreement.
void check_agreement(const Monitor& monitor, int ranks, const Fingerprint& mine,
                     FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather);

/// Gathers the numbers of elements that all ranks send and receive in an all_to_all. Throws CollectiveError, the same
/// on every rank, if a rank receives a different number of elements than its peer sends. `mine`: for each exchange, the
/// number of elements that this rank sends to each rank, then the number that it receives from each.
void check_exchanged_counts(const Monitor& monitor, int ranks, std::span<const std::int64_t> mine,
                            FunctionRef<void(std::span<const std::byte>, std::span<std::byte>)> gather);

}  // namespace fsdp::comm
