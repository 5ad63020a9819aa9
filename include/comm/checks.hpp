// SPDX-License-Identifier: Apache-2.0
/// @file
/// Agreement of ranks: what each is about to do, compared before it does it. On where Options::checks is set, on all
/// ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <comm/communicator.hpp>

namespace fsdp::comm {

/// A collective in a fixed number of bytes, so that one small gather compares it.
struct Fingerprint {
  std::int64_t sequence = 0;
  std::int64_t bytes = 0;
  std::uint64_t sizes = 0;  ///< hash of all counts of all segments
  std::int64_t segments = 0;
  std::int32_t unit = -1;
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::uint8_t variant = 0;  ///< Reduction, Write or root
  std::array<char, 48> what{};

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

Fingerprint fingerprint_of(const Record& record, std::int64_t segments, std::uint64_t sizes, std::uint8_t variant);

/// Throws CollectiveError, on every rank the same, unless all are equal.
void require_agreement(const Monitor& monitor, std::span<const Fingerprint> by_rank);

template <Communicator C>
void check_agreement(C& communicator, const Fingerprint& mine) {
  std::vector<Fingerprint> all(static_cast<std::size_t>(communicator.size()));
  communicator.gather_bytes(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  require_agreement(communicator.monitor(), all);
}

}  // namespace fsdp::comm
