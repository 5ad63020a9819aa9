// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code shared by attention's forward and backward: blocks of a sequence, primitives by tile size, tasks for threads.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include <omp.h>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"
#include "onednn.hpp"

namespace fsdp::device::cpu {

/// The size of a tile of scores. Tiles at the end of a sequence may be smaller than the chosen size.
struct AttentionBlocks {
  std::int64_t queries = 0, keys = 0;
  friend bool operator==(const AttentionBlocks&, const AttentionBlocks&) = default;
};

/// Returns the tile size, found by measurement: large tiles make matmuls efficient, small tiles waste less work along
/// the causal diagonal.
AttentionBlocks attention_blocks(const AttentionShape& shape, bool backward);

/// Returns the distinct sizes of the tiles of a sequence. Their number is small, because each size needs its own
/// primitives.
std::vector<AttentionBlocks> tile_extents(std::int64_t sequence_length, const AttentionBlocks& blocks);

/// Queries [begin, end) of a sequence, which attend to at most keys [first_key, end), in tiles of at most `keys`. The
/// grid of tiles does not depend on documents, so that few primitives suffice and the scratch size is known in advance.
struct QueryBlock {
  std::int64_t begin = 0, end = 0;
  std::int64_t first_key = 0;  ///< a tile border; no query attends to an earlier key

  std::int64_t queries() const { return end - begin; }
};

inline std::int64_t window_of(const AttentionShape& shape) {
  return shape.windowed() ? shape.window : shape.sequence_length;
}

QueryBlock query_block(const AttentionShape& shape, const AttentionBlocks& blocks, std::int64_t sequence,
                       std::int64_t index);

/// Calls body(begin, end, document) for the part of each document within tokens [begin, end) of a sequence; positions
/// count from the sequence's start.
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

/// Returns the row stride of a tile in floats: a multiple of the vector length, but not a power of two, which would use
/// few cache sets.
constexpr std::int64_t tile_leading(std::int64_t columns) { return round_up(columns, 16) + 16; }

inline float score_scale(const AttentionShape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.head_dim)); }

/// The matmul that computes a tile's scores: [rows, d] times [columns, d] transposed, into rows of `leading` floats.
inline MatmulKey scores_matmul(DType dtype, std::int64_t rows, std::int64_t columns, std::int64_t d,
                               std::int64_t leading) {
  return {.a = dtype,
          .m = rows,
          .n = columns,
          .k = d,
          .lda = d,
          .ldb = d,
          .ldc = leading,
          .b_transposed = true,
          .single_thread = true};
}

/// The matmul that accumulates into sums [rows, d]: a tile [rows, inner], optionally `transposed`, times [inner, d].
/// The tile's rows are `leading` floats apart and store elements of the narrower type.
inline MatmulKey sums_matmul(DType dtype, std::int64_t rows, std::int64_t inner, std::int64_t d, std::int64_t leading,
                             bool transposed = false) {
  return {.a = dtype,
          .m = rows,
          .n = d,
          .k = inner,
          .lda = leading * size_of(DType::f32) / size_of(dtype),
          .ldb = d,
          .ldc = d,
          .a_transposed = transposed,
          .accumulate = true,
          .single_thread = true};
}

/// Returns the scratch bytes of the largest matmul of a pass, which has its shape, its blocks, and keys_of(tile), the
/// problems of one tile.
template <class Pass>
std::int64_t matmul_bytes(const Cpu::Planner& planner, const Pass& pass) {
  std::int64_t bytes = 0;
  for (const AttentionBlocks& tile : tile_extents(pass.shape.sequence_length, pass.blocks))
    for (const MatmulKey& key : pass.keys_of(tile)) bytes = std::max(bytes, cache_of(planner).matmul_scratch(key));
  return bytes;
}

/// The matmuls of a pass: N for each tile size, in the order of keys_of(tile).
template <std::size_t N>
class TileMatmuls {
 public:
  template <class Pass>
  void make(const Cpu::Planner& planner, const Pass& pass) {
    for (const AttentionBlocks& tile : tile_extents(pass.shape.sequence_length, pass.blocks)) {
      const std::array<MatmulKey, N> keys = pass.keys_of(tile);
      auto& [size, matmuls] = entries_.emplace_back(tile, std::array<const Matmul*, N>());
      for (std::size_t i = 0; i < N; ++i) matmuls[i] = &cache_of(planner).matmul(keys[i]);
    }
  }
  const std::array<const Matmul*, N>& of(const AttentionBlocks& tile) const {
    return std::ranges::find(entries_, tile, &Entry::first)->second;
  }

 private:
  using Entry = std::pair<AttentionBlocks, std::array<const Matmul*, N>>;
  std::vector<Entry> entries_;
};

/// Returns rows [begin, end) of the columns of head `head`.
template <class T>
Rows<T> head_rows(const Tensor<T>& matrix, std::int64_t head, std::int64_t head_dim, std::int64_t begin,
                  std::int64_t end) {
  return {.data = matrix.row(begin) + head * head_dim,
          .stride = matrix.row_stride(),
          .rows = end - begin,
          .columns = head_dim};
}

/// Returns the tile from row `row` on.
inline SoftmaxTile rows_from(SoftmaxTile tile, std::int64_t row) {
  tile.scores += row * tile.leading;
  tile.maximum += row;
  tile.sum += row;
  tile.out += row * tile.head_dim;
  return tile;
}

/// Sets the running results of `queries` queries to those of no keys.
inline void clear(const SoftmaxTile& tile, std::int64_t queries) {
  std::fill_n(tile.maximum, queries, -std::numeric_limits<float>::infinity());
  std::fill_n(tile.sum, queries, 0.0f);
  std::fill_n(tile.out, queries * tile.head_dim, 0.0f);
}

/// Calls body(task, thread) for every task: in order with one thread, dynamically scheduled with several. Catches
/// exceptions, which must not leave a parallel region, and rethrows the first one afterwards.
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
