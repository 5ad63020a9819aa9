// SPDX-License-Identifier: Apache-2.0
/// @file
/// What attention's two passes share: how a sequence is cut into blocks, how scratch is laid out, how work is spread.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <numbers>
#include <vector>

#include <omp.h>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/cpu.hpp>
#include <fsdp/device/memory.hpp>

#include "attention_kernels.hpp"
#include "onednn.hpp"
#include "scratch_layout.hpp"

namespace fsdp::device::cpu {

/// Extents of a tile of scores: as a choice, of all tiles but those at the end of a sequence.
struct AttentionBlocks {
  std::int64_t queries = 0;
  std::int64_t keys = 0;

  friend bool operator==(const AttentionBlocks&, const AttentionBlocks&) = default;
};

/// Chosen by measurement: large tiles feed the matmul, small ones waste less where the causal border cuts them.
AttentionBlocks attention_blocks(const AttentionShape& shape, bool backward);

/// The distinct extents of the tiles that a sequence is cut into; few, because each needs primitives of its own.
std::vector<AttentionBlocks> tile_extents(std::int64_t sequence_length, const AttentionBlocks& blocks);

/// Queries [begin, end) of a sequence; they see keys [first_key, end) at most, in tiles of at most `keys`. Tiles stand
/// on one grid whatever the documents, so that few primitives serve all and scratch is known beforehand.
struct QueryBlock {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_key = 0;  ///< a border of tiles: no query sees a key of the tiles before it

  std::int64_t queries() const { return end - begin; }
};

/// Tokens that one sees at most.
inline std::int64_t window_of(const AttentionShape& shape) {
  return shape.windowed() ? shape.window : shape.sequence_length;
}

QueryBlock query_block(const AttentionShape& shape, const AttentionBlocks& blocks, std::int64_t sequence,
                       std::int64_t index);

/// body(begin, end, document) for each document's part of tokens [begin, end) of a sequence, counted from its start.
template <class Body>
void for_each_document(const AttentionShape& shape, std::int64_t sequence, std::int64_t begin, std::int64_t end,
                       const Body& body) {
  const std::int64_t start = sequence * shape.sequence_length;
  while (begin < end) {
    const Document found = shape.document(start + begin);
    const Document document{.begin = found.begin - start, .end = found.end - start};
    const std::int64_t stop = std::min(document.end, end);
    body(begin, stop, document);
    begin = stop;
  }
}

/// The queries of all heads of a group, shared out among parts that work at once.
struct QuerySplit {
  std::vector<std::int64_t> part;  ///< of each block: index member * query_blocks + block
  std::int64_t longest = 0;        ///< work of the fullest part, in keys
  std::int64_t total = 0;          ///< of all parts
};

/// The last blocks first, which see the most keys, each to the part with the least so far. `keys`: of each block.
QuerySplit split_queries(std::int64_t parts, std::int64_t group, const std::vector<std::int64_t>& keys);

/// Floats from one row of a tile to the next: whole vectors, and not a power of two, which would crowd few cache sets.
constexpr std::int64_t tile_leading(std::int64_t columns) { return round_up(columns, 16) + 16; }

inline float score_scale(const AttentionShape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

/// The primitives of each extent of tiles.
template <class Matmuls>
class ByExtent {
 public:
  void add(const AttentionBlocks& extent, const Matmuls& matmuls) { entries_.push_back({extent, matmuls}); }
  const Matmuls& operator()(std::int64_t queries, std::int64_t keys) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
      return entry.extent == AttentionBlocks{.queries = queries, .keys = keys};
    });
    return found->matmuls;
  }

 private:
  struct Entry {
    AttentionBlocks extent;
    Matmuls matmuls;
  };
  std::vector<Entry> entries_;
};

/// Columns of head `head` of tokens [begin, end).
template <class T>
Rows<T> head_rows(const Tensor<T>& matrix, std::int64_t head, std::int64_t head_dim, std::int64_t begin,
                  std::int64_t end) {
  return {.data = matrix.row(begin) + head * head_dim,
          .stride = matrix.row_stride(),
          .rows = end - begin,
          .columns = head_dim};
}

/// body(task, thread) for every task, in order with one thread, as threads become free with several.
/// The first exception is thrown again here: none may leave a parallel region.
template <class Body>
void for_each_task(int threads, std::int64_t tasks, const Body& body) {
  if (threads == 1) {
    for (std::int64_t task = 0; task < tasks; ++task) body(task, 0);
    return;
  }
  std::exception_ptr failure;
#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
  for (std::int64_t task = 0; task < tasks; ++task) {
    try {
      body(task, omp_get_thread_num());
    } catch (...) {
#pragma omp critical(fsdp_attention_failure)
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace fsdp::device::cpu
