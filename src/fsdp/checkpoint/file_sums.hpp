// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checksums of a file's chunks: ranks compute them while they write, and readers of any range check them.
///
/// A file is divided into chunks of equal length, each with a CRC-32C. A rank that writes a part of a chunk computes
/// that part's share of the checksum from memory (`WrittenSums`); the shares of all ranks are then combined
/// (`combined`). A rank that reads a range reads all chunks that overlap it, at most two more than needed, so that
/// everything it uses is checked. Measured on one busy core of an EPYC: ISA-L's CRC-32C 54 GB/s from cache and 11 GB/s
/// from memory, where memcpy reached 8 GB/s; combining one part takes 0.5 us.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include <tessera/fsdp/checkpoint/safetensors.hpp>

namespace fsdp::checkpoint {

/// Returns the chunk size of a file: 64 KiB; for files above 16 GiB a larger power of two, for at most 2^18 chunks.
std::int64_t chunk_bytes_of(std::int64_t file_bytes);

/// The size of a file and the checksums of its chunks.
struct FileSums {
  std::int64_t bytes = 0;              ///< of the file
  std::int64_t chunk_bytes = 0;        ///< of each chunk but the last
  std::vector<std::uint32_t> crc32cs;  ///< of each chunk; an empty file has none

  std::int64_t begin_of(std::int64_t chunk) const { return chunk * chunk_bytes; }
  std::int64_t length_of(std::int64_t chunk) const { return std::min(chunk_bytes, bytes - begin_of(chunk)); }

  /// Throws DamageError, which names `path` and the chunk's bytes, unless `content` has the chunk's checksum.
  void check(const std::filesystem::path& path, std::int64_t chunk, std::span<const std::byte> content) const;

  friend bool operator==(const FileSums&, const FileSums&) = default;
};

/// Returns the checksums of a whole file's content.
FileSums sums_of(std::string_view content);

/// A rank's shares of the checksums of one file.
class WrittenSums {
 public:
  struct Share {
    std::int64_t chunk;
    std::int64_t bytes;       ///< that this rank wrote in the chunk
    std::uint32_t remainder;  ///< of the chunk with zeros in place of all other bytes
    std::uint32_t file = 0;   ///< which file, if shares of several are sent together
  };

  explicit WrittenSums(std::int64_t file_bytes) : bytes_(file_bytes), chunk_bytes_(chunk_bytes_of(file_bytes)) {}
  void add(std::int64_t offset, std::span<const std::byte> content);
  std::span<const Share> shares() const { return shares_; }

 private:
  std::int64_t bytes_, chunk_bytes_;
  std::vector<Share> shares_;
};

/// Combines all ranks' shares to the checksums of file number `file`. Counts the bytes written in each chunk: throws
/// Error if they are not those that the chunk has.
FileSums combined(std::string_view path, std::int64_t file_bytes, std::uint32_t file,
                  std::span<const WrittenSums::Share> shares);

/// Reads as read_all does. If `sums` is not nullptr, checks all chunks that overlap the range.
void read_checked(const FileDescriptor& file, const std::filesystem::path& path, const FileSums* sums, void* data,
                  std::size_t bytes, std::int64_t offset);

}  // namespace fsdp::checkpoint
