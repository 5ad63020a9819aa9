// SPDX-License-Identifier: Apache-2.0
/// @file
/// CRC-32C (Castagnoli; used by iSCSI, RFC 3720), and functions that combine the CRCs of parts.
///
/// Why not a faster hash: ranks write ranges that end anywhere. The CRC of the whole can be computed from the CRCs of
/// the parts, so that no rank has to read the file again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdp::checkpoint {

/// Returns the CRC-32C in the usual form: 0xe3069283 for "123456789".
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// Return the plain remainder, without the usual inversions; 0 for zeros. `shifted` returns the remainder after `after`
/// zero bytes are appended. To combine parts, shift each by the number of bytes behind it, then xor all of them.
std::uint32_t remainder_of(std::span<const std::byte> bytes);
std::uint32_t shifted(std::uint32_t remainder, std::int64_t after);

/// Returns the CRC-32C of `bytes` bytes whose plain remainder is `remainder`.
std::uint32_t crc32c_of(std::uint32_t remainder, std::int64_t bytes);

}  // namespace fsdp::checkpoint
