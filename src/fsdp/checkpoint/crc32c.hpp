// SPDX-License-Identifier: Apache-2.0
/// @file
/// CRC-32C (Castagnoli; used by iSCSI, RFC 3720), and functions that combine the CRCs of parts.
///
/// Why not a faster hash: ranks write ranges that end anywhere. A CRC of the whole can be computed from those of the
/// parts, so that nobody has to read the file again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdp::checkpoint {

/// Returns the CRC-32C in the usual form: 0xe3069283 for "123456789".
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// The plain remainder, without the usual inversions; 0 for zeros. `shifted` returns the remainder after appending
/// `after` zero bytes. To combine parts, shift each by the number of bytes after it, then xor them all.
std::uint32_t remainder_of(std::span<const std::byte> bytes);
std::uint32_t shifted(std::uint32_t remainder, std::int64_t after);

/// Returns the CRC-32C of `bytes` bytes with this remainder.
std::uint32_t crc32c_of(std::uint32_t remainder, std::int64_t bytes);

}  // namespace fsdp::checkpoint
