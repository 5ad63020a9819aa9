// SPDX-License-Identifier: Apache-2.0
/// @file
/// How attention splits a sequence into blocks and distributes them over threads, and its forward pass: oneDNN matmuls
/// of tiles with an online softmax in between (Dao 2023, FlashAttention-2).
#include "attention.hpp"

namespace fsdp::device::cpu {

AttentionBlocks attention_blocks(const AttentionShape& shape, bool backward) {
  const std::int64_t length = shape.sequence_length;
  const std::int64_t queries = length <= 512 ? 64 : length <= 2048 ? 128 : 256, keys = backward ? 256 : 512;
  return {.queries = std::min(queries, length), .keys = std::min(keys, length)};
}

std::vector<AttentionBlocks> tile_extents(std::int64_t sequence_length, const AttentionBlocks& blocks) {
  std::vector<AttentionBlocks> extents;
  const auto add = [&](const AttentionBlocks& extent) {
    if (std::ranges::find(extents, extent) == extents.end()) extents.push_back(extent);
  };
  for (std::int64_t begin = 0; begin < sequence_length; begin += blocks.queries) {
    const std::int64_t end = std::min(begin + blocks.queries, sequence_length);
    if (end >= blocks.keys) add({.queries = end - begin, .keys = blocks.keys});
    if (end % blocks.keys != 0) add({.queries = end - begin, .keys = end % blocks.keys});
  }
  return extents;
}

QueryBlock query_block(const AttentionShape& shape, const AttentionBlocks& blocks, std::int64_t sequence,
                       std::int64_t index) {
  const std::int64_t start = sequence * shape.sequence_length, begin = index * blocks.queries;
  const std::int64_t first = std::max(shape.document(start + begin).begin - start, begin + 1 - window_of(shape));
  return {.begin = begin,
          .end = std::min(begin + blocks.queries, shape.sequence_length),
          .first_key = first - first % blocks.keys};
}

namespace {

/// One call, whose tasks share it.
template <class T>
struct Forward {
  const Attention<T>& op;
  const AttentionShape& shape = op.shape;
  AttentionBlocks blocks = attention_blocks(shape, false);
  std::int64_t d = shape.head_dim, query_blocks = ceil_divide(shape.sequence_length, blocks.queries);
  TileMatmuls<2> matmuls = {};  ///< queries times keys; probabilities times values
  /// Offsets in one thread's scratch.
  struct Layout {
    std::int64_t query, key, value, scores, out, maximum, sum, matmul, bytes;
  } layout = {};

  std::array<MatmulKey, 2> keys_of(const AttentionBlocks& tile) const {
    const std::int64_t leading = tile_leading(blocks.keys);
    return {scores_matmul(dtype_of<T>(), tile.queries, tile.keys, d, leading),
            sums_matmul(dtype_of<T>(), tile.queries, tile.keys, d, leading)};
  }

  int threads(const Cpu::Planner& planner) const {
    return static_cast<int>(std::min<std::int64_t>(planner.threads(), shape.sequences * shape.heads * query_blocks));
  }

  /// Sets the layout and returns the scratch bytes of one thread.
  std::int64_t plan(const Cpu::Planner& planner) {
    constexpr std::int64_t real = sizeof(float), size = sizeof(T);
    ScratchLayout thread;
    layout = {.query = thread.place(blocks.queries * d, size),
              .key = thread.place(blocks.keys * d, size),
              .value = thread.place(blocks.keys * d, size),
              .scores = thread.place(blocks.queries * tile_leading(blocks.keys), real),
              .out = thread.place(blocks.queries * d, real),
              .maximum = thread.place(blocks.queries, real),
              .sum = thread.place(blocks.queries, real),
              .matmul = thread.place(matmul_bytes(planner, *this), 1),
              .bytes = thread.bytes()};
    return layout.bytes;
  }

  /// Applies the softmax to the tile's rows, document by document, with the keys visible to each document.
  void softmax(const SoftmaxTile& tile, std::int64_t sequence, std::int64_t first_query, std::int64_t first_key) const {
    for_each_document(shape, sequence, first_query, first_query + tile.rows,
                      [&](std::int64_t begin, std::int64_t end, const Document& document) {
                        SoftmaxTile part = rows_from(tile, begin - first_query);
                        part.rows = end - begin;
                        part.visible = begin - first_key + 1;
                        part.behind = part.visible - window_of(shape);
                        part.first = std::clamp<std::int64_t>(document.begin - first_key, 0, tile.columns);
                        kernels<AttentionKernels>().of<T>().softmax(part);
                      });
  }

  void run_block(std::int64_t sequence, std::int64_t head, std::int64_t block, std::byte* scratch) const {
    const auto& kernel = kernels<AttentionKernels>().of<T>();
    const QueryBlock queries = query_block(shape, blocks, sequence, block);
    const std::int64_t first = sequence * shape.sequence_length, kv_head = head / (shape.heads / shape.kv_heads);
    T* const query = reinterpret_cast<T*>(scratch + layout.query);
    T* const key = reinterpret_cast<T*>(scratch + layout.key);
    T* const value = reinterpret_cast<T*>(scratch + layout.value);
    SoftmaxTile tile{.scores = reinterpret_cast<float*>(scratch + layout.scores),
                     .rows = queries.queries(),
                     .leading = tile_leading(blocks.keys),
                     .scale = std::numbers::log2e_v<float> * score_scale(shape),
                     .maximum = reinterpret_cast<float*>(scratch + layout.maximum),
                     .sum = reinterpret_cast<float*>(scratch + layout.sum),
                     .out = reinterpret_cast<float*>(scratch + layout.out),
                     .head_dim = d};
    clear(tile, tile.rows);
    kernel.pack(head_rows(op.q, head, d, first + queries.begin, first + queries.end), query);
    for (std::int64_t begin = queries.first_key; begin < queries.end; begin += blocks.keys) {
      const std::int64_t end = std::min(begin + blocks.keys, queries.end);
      const auto& [scores, gather] = matmuls.of({.queries = tile.rows, .keys = end - begin});
      kernel.pack(head_rows(op.k, kv_head, d, first + begin, first + end), key);
      kernel.pack(head_rows(op.v, kv_head, d, first + begin, first + end), value);
      tile.columns = end - begin;
      run(*scores, query, key, tile.scores, scratch + layout.matmul);
      softmax(tile, sequence, queries.begin, begin);
      run(*gather, tile.scores, value, tile.out, scratch + layout.matmul);
    }
    kernel.finish(tile, head_rows(op.out, head, d, first + queries.begin, first + queries.end),
                  op.lse.row(sequence * shape.heads + head) + queries.begin);
  }
};

}  // namespace
}  // namespace fsdp::device::cpu

namespace fsdp::device {

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const Attention<T>& op) {
  if (op.shape.tokens() == 0) return 0;
  cpu::Forward<T> forward{.op = op};
  return forward.threads(planner) * forward.plan(planner);
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Attention<T>& op, Scratch memory) {
  const AttentionShape& shape = op.shape;
  if (shape.tokens() == 0) return;
  cpu::Forward<T> forward{.op = op};
  const std::int64_t bytes = forward.plan(stream), heads = shape.sequences * shape.heads, blocks = forward.query_blocks;
  forward.matmuls.make(stream, forward);
  // The last queries attend to the most keys. The longest tasks run first, so that threads finish together.
  cpu::for_each_task(forward.threads(stream), heads * blocks, [&](std::int64_t task, int thread) {
    const std::int64_t head = task % heads;
    forward.run_block(head / shape.heads, head % shape.heads, blocks - 1 - task / heads, memory.data + thread * bytes);
  });
}

FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, Attention)

}  // namespace fsdp::device
