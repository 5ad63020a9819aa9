// SPDX-License-Identifier: Apache-2.0
/// @file
/// Launch sizes of kernels, and the division of rows into 16-byte vectors. Plain arithmetic without CUDA.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>

#include <tessera/fsdp/core/error.hpp>

#include "../host_device.hpp"

namespace fsdp::device::cuda {

/// The grid of one launch. CUDA allows 2^31 - 1 along x and 65535 along y; kernels loop over the remaining work.
struct Grid {
  std::uint32_t x = 1;
  std::uint32_t y = 1;
  std::uint32_t threads = 1;
};

inline constexpr std::uint32_t element_threads = 256;
inline constexpr std::uint32_t most_blocks = 65535;  ///< maximum number of blocks along x or y
inline constexpr std::uint32_t warp = 32;
inline constexpr std::uint32_t most_threads = 1024;
/// Bytes of dynamic shared memory up to which a launch need not raise the kernel's limit. By default, a block may use
/// 48 KiB, including static memory, whose size the host does not know. This leaves 32 KiB for static memory, twice the
/// maximum of all kernels here.
inline constexpr std::size_t shared_without_asking = 16 * 1024;

/// 16 bytes that are loaded or stored at once.
struct alignas(16) Wide {
  std::uint32_t words[4];
};

/// A range of a row: elements [first, first + count).
struct Elements {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// A row divided for wide accesses: `head` single elements, then `vectors` vectors of `width` elements, then the
/// remaining single elements. An item is one vector or one element; vectors come first.
struct Cut {
  std::int64_t columns = 0;
  std::int64_t head = 0;
  std::int64_t vectors = 0;
  std::int64_t width = 1;

  FSDP_BOTH std::int64_t items() const { return vectors + columns - vectors * width; }
  FSDP_BOTH Elements item(std::int64_t index) const {
    if (index < vectors) return {head + index * width, width};
    const std::int64_t single = index - vectors;
    return {single < head ? single : single + vectors * width, 1};
  }
};

/// The address and row stride of an operand.
struct Access {
  const void* data = nullptr;
  std::int64_t element_bytes = 1;
  std::int64_t row_stride = 0;  ///< elements between rows; 0: every access is to the same row
};

/// Returns a division into single elements.
inline Cut cut_singly(std::int64_t columns) { return {.columns = columns}; }

/// Returns a division into vectors of `width` elements if the rows of all operands reach an aligned address at the same
/// column; otherwise into single elements. Each operand's row stride must be a multiple of `width`, since a row of
/// output may come from any row of a table.
inline Cut cut_for_vectors(std::int64_t columns, std::int64_t width, std::span<const Access> accesses) {
  std::int64_t head = -1;
  for (const Access& access : accesses) {
    const auto address = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(access.data));
    if (address % access.element_bytes != 0 || access.row_stride % width != 0) return cut_singly(columns);
    const std::int64_t own_head = (width - address / access.element_bytes % width) % width;
    if (head >= 0 && own_head != head) return cut_singly(columns);
    head = own_head;
  }
  if (head < 0 || head + width > columns) return cut_singly(columns);
  return {.columns = columns, .head = head, .vectors = (columns - head) / width, .width = width};
}
inline Cut cut_for_vectors(std::int64_t columns, std::int64_t width, std::initializer_list<Access> accesses) {
  return cut_for_vectors(columns, width, std::span(accesses.begin(), accesses.size()));
}

/// Number of thread blocks that own a table's rows; each of them reads all tokens. Tokens with neighbouring numbers
/// often have similar frequencies (the most frequent have the lowest numbers), so neighbours have different owners.
inline constexpr std::int64_t row_owners = 1024;
FSDP_BOTH std::uint32_t owner_of_row(std::int64_t row) { return static_cast<std::uint32_t>(row % row_owners); }

/// Returns a grid of one thread per item, with rows along y. If the grid would be too large, kernels loop over rows and
/// items.
inline Grid grid_of_elements(std::int64_t rows, std::int64_t items) {
  const std::int64_t blocks = items / element_threads + (items % element_threads > 0 ? 1 : 0);
  return {.x = static_cast<std::uint32_t>(std::clamp<std::int64_t>(blocks, 1, most_blocks)),
          .y = static_cast<std::uint32_t>(std::clamp<std::int64_t>(rows, 1, most_blocks)),
          .threads = element_threads};
}

/// Returns a grid of one block per row, with up to one thread per item.
inline Grid grid_of_rows(std::int64_t rows, std::int64_t items) {
  const std::int64_t threads = std::clamp<std::int64_t>((items + warp - 1) / warp * warp, warp, most_threads);
  return {.x = static_cast<std::uint32_t>(std::clamp<std::int64_t>(rows, 1, most_blocks)),
          .threads = static_cast<std::uint32_t>(threads)};
}

/// Returns a grid of exactly `blocks` blocks, for kernels that assign one task to each block. Throws InputError if a
/// grid cannot have that many.
inline Grid grid_of_blocks(std::int64_t blocks, std::uint32_t threads) {
  require<InputError>(blocks >= 1 && blocks <= 0x7fffffff, "a kernel of ", blocks,
                      " blocks; CUDA starts at most 2^31 - 1");
  return {.x = static_cast<std::uint32_t>(blocks), .threads = threads};
}

}  // namespace fsdp::device::cuda
