// SPDX-License-Identifier: Apache-2.0
/// @file
/// CRC-32C (Castagnoli; that of iSCSI and of RFC 3720), and the algebra that combines those of parts.
///
/// Why not a faster-looking hash: ranks write ranges that end anywhere, and a CRC is the one checksum of a whole that
/// can be made of the checksums of its parts, so that nobody reads again what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fsdp::checkpoint {

/// As tools print it: 0xe3069283 for "123456789".
std::uint32_t crc32c(std::span<const std::byte> bytes);

/// The remainder alone, without the usual inversions: 0 for zeros. What `after` zeros behind the bytes make of it is
/// `shifted`; the exclusive or of parts, each shifted by the bytes behind it, is the remainder of the whole.
std::uint32_t remainder_of(std::span<const std::byte> bytes);
std::uint32_t shifted(std::uint32_t remainder, std::int64_t after);

/// The CRC-32C of `bytes` bytes whose remainder is known.
std::uint32_t crc32c_of(std::uint32_t remainder, std::int64_t bytes);

}  // namespace fsdp::checkpoint
