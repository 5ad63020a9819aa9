// SPDX-License-Identifier: Apache-2.0
/// @file
/// How attention splits a sequence into blocks and distributes them over threads, and its forward pass: oneDNN matmuls
/// of tiles with an online softmax in between (Dao 2023, FlashAttention-2).
#include "attention.hpp"

#include <numeric>

namespace fsdp::device::cpu {

AttentionBlocks attention_blocks(const AttentionShape& shape, bool backward) {
  const std::int64_t length = shape.sequence_length;
  const std::int64_t queries = length <= 512 ? 64 : length <= 2048 ? 128 : 256, keys = backward ? 256 : 512;
  return {.queries = std::min(queries, length), .keys = std::min(keys, length)};
}

std::vector<AttentionBlocks> tile_extents(std::int64_t sequence_length, const AttentionBlocks& blocks) {
  std::vector<AttentionBlocks> extents;
  const auto add = [&](const AttentionBlocks& extent) {
    if (std::find(extents.begin(), extents.end(), extent) == extents.end()) extents.push_back(extent);
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

QuerySplit split_queries(std::int64_t parts, std::int64_t group, const std::vector<std::int64_t>& keys) {
  const std::int64_t query_blocks = std::ssize(keys);
  QuerySplit split{.part = std::vector<std::int64_t>(static_cast<std::size_t>(group * query_blocks))};
  std::vector<std::int64_t> load(static_cast<std::size_t>(parts), 0);
  for (std::int64_t block = query_blocks - 1; block >= 0; --block)
    for (std::int64_t member = 0; member < group; ++member) {
      const auto least = std::min_element(load.begin(), load.end());
      split.part[static_cast<std::size_t>(member * query_blocks + block)] = least - load.begin();
      *least += keys[static_cast<std::size_t>(block)];
    }
  split.longest = *std::max_element(load.begin(), load.end());
  split.total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  return split;
}

}  // namespace fsdp::device::cpu

namespace fsdp::device {
namespace cpu {
namespace {

/// The matmuls of one tile size: queries x keys, then probabilities x values.
struct ForwardKeys {
  MatmulKey scores, gather;
};

struct ForwardMatmuls {
  const Matmul* scores = nullptr;
  const Matmul* gather = nullptr;
};

/// The layout of one thread's scratch.
struct ForwardLayout {
  std::int64_t query = 0, key = 0, value = 0, scores = 0, out = 0, maximum = 0, sum = 0, matmul = 0;
  std::int64_t bytes = 0;
};

ForwardKeys forward_keys(const AttentionBlocks& blocks, const AttentionBlocks& tile, std::int64_t d, DType dtype) {
  const std::int64_t leading = tile_leading(blocks.keys);
  return {.scores = scores_matmul(dtype, tile.queries, tile.keys, d, leading),
          .gather = sums_matmul(dtype, tile.queries, tile.keys, d, leading)};
}

ForwardLayout forward_layout(const Cpu::Planner& planner, const AttentionShape& shape, const AttentionBlocks& blocks,
                             DType dtype) {
  std::int64_t matmul_bytes = 0;
  for (const AttentionBlocks& tile : tile_extents(shape.sequence_length, blocks)) {
    const ForwardKeys keys = forward_keys(blocks, tile, shape.head_dim, dtype);
    for (const MatmulKey& key : {keys.scores, keys.gather})
      matmul_bytes = std::max(matmul_bytes, cache_of(planner).matmul_scratch(key));
  }
  const std::int64_t d = shape.head_dim;
  ScratchLayout scratch;
  ForwardLayout layout;
  layout.query = scratch.place(blocks.queries * d, size_of(dtype));
  layout.key = scratch.place(blocks.keys * d, size_of(dtype));
  layout.value = scratch.place(blocks.keys * d, size_of(dtype));
  layout.scores = scratch.place(blocks.queries * tile_leading(blocks.keys), size_of(DType::f32));
  layout.out = scratch.place(blocks.queries * d, size_of(DType::f32));
  layout.maximum = scratch.place(blocks.queries, size_of(DType::f32));
  layout.sum = scratch.place(blocks.queries, size_of(DType::f32));
  layout.matmul = scratch.place(matmul_bytes, 1);
  layout.bytes = scratch.bytes();
  return layout;
}

/// The arguments of one call, which are shared by all its tasks.
template <class T>
struct Forward {
  const AttentionShape& shape;
  AttentionBlocks blocks;
  ForwardLayout layout;
  ByExtent<ForwardMatmuls> matmuls;
  Tensor<const T> q, k, v;
  Tensor<T> out;
  Tensor<float> lse;

  void run_block(std::int64_t sequence, std::int64_t head, const QueryBlock& queries, std::byte* scratch) const;
  void softmax(const SoftmaxTile& tile, std::int64_t sequence, std::int64_t first_query, std::int64_t first_key) const;
};

/// Applies the softmax to the tile's rows, document by document, with the keys visible to each document.
template <class T>
void Forward<T>::softmax(const SoftmaxTile& tile, std::int64_t sequence, std::int64_t first_query,
                         std::int64_t first_key) const {
  for_each_document(shape, sequence, first_query, first_query + tile.rows,
                    [&](std::int64_t begin, std::int64_t end, const Document& document) {
                      const std::int64_t row = begin - first_query;
                      SoftmaxTile part = tile;
                      part.scores += row * tile.leading;
                      part.maximum += row;
                      part.sum += row;
                      part.out += row * tile.head_dim;
                      part.rows = end - begin;
                      part.visible = begin - first_key + 1;
                      part.behind = part.visible - window_of(shape);
                      part.first = std::clamp<std::int64_t>(document.begin - first_key, 0, tile.columns);
                      attention_forward_kernels<T>().softmax(part);
                    });
}

/// Computes one block of queries of one head against all its keys.
template <class T>
void Forward<T>::run_block(std::int64_t sequence, std::int64_t head, const QueryBlock& queries,
                           std::byte* scratch) const {
  const AttentionForward<T>& pass = attention_forward_kernels<T>();
  const std::int64_t d = shape.head_dim, first = sequence * shape.sequence_length;
  const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
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
  std::fill_n(tile.maximum, tile.rows, -std::numeric_limits<float>::infinity());
  std::fill_n(tile.sum, tile.rows, 0.0f);
  std::fill_n(tile.out, tile.rows * d, 0.0f);
  pass.pack(head_rows(q, head, d, first + queries.begin, first + queries.end), query);
  for (std::int64_t begin = queries.first_key; begin < queries.end; begin += blocks.keys) {
    const std::int64_t end = std::min(begin + blocks.keys, queries.end);
    const ForwardMatmuls& matmul = matmuls(tile.rows, end - begin);
    pass.pack(head_rows(k, kv_head, d, first + begin, first + end), key);
    pass.pack(head_rows(v, kv_head, d, first + begin, first + end), value);
    tile.columns = end - begin;
    run(*matmul.scores, query, key, tile.scores, scratch + layout.matmul);
    softmax(tile, sequence, queries.begin, begin);
    run(*matmul.gather, tile.scores, value, tile.out, scratch + layout.matmul);
  }
  pass.finish(tile, head_rows(out, head, d, first + queries.begin, first + queries.end),
              lse.row(sequence * shape.heads + head) + queries.begin);
}

std::int64_t query_blocks(const AttentionShape& shape, const AttentionBlocks& blocks) {
  return ceil_divide(shape.sequence_length, blocks.queries);
}

int forward_threads(const Cpu::Planner& planner, const AttentionShape& shape, const AttentionBlocks& blocks) {
  return static_cast<int>(
      std::min<std::int64_t>(planner.threads(), shape.sequences * shape.heads * query_blocks(shape, blocks)));
}

}  // namespace

}  // namespace cpu

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const Attention<T>& op) {
  if (op.shape.tokens() == 0) return 0;
  const cpu::AttentionBlocks blocks = cpu::attention_blocks(op.shape, false);
  return cpu::forward_threads(planner, op.shape, blocks) *
         cpu::forward_layout(planner, op.shape, blocks, dtype_of<T>()).bytes;
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const Attention<T>& op, Scratch memory) {
  const AttentionShape& shape = op.shape;
  if (shape.tokens() == 0) return;
  const cpu::AttentionBlocks blocks = cpu::attention_blocks(shape, false);
  cpu::Forward<T> forward{.shape = shape,
                          .blocks = blocks,
                          .layout = cpu::forward_layout(stream, shape, blocks, dtype_of<T>()),
                          .matmuls = {},
                          .q = op.q,
                          .k = op.k,
                          .v = op.v,
                          .out = op.out,
                          .lse = op.lse};
  for (const cpu::AttentionBlocks& tile : cpu::tile_extents(shape.sequence_length, blocks)) {
    const cpu::ForwardKeys keys = cpu::forward_keys(blocks, tile, shape.head_dim, dtype_of<T>());
    forward.matmuls.add(tile, {.scores = &cpu::cache_of(stream).matmul(keys.scores),
                               .gather = &cpu::cache_of(stream).matmul(keys.gather)});
  }
  const int threads = cpu::forward_threads(stream, shape, blocks);
  const std::int64_t heads = shape.sequences * shape.heads, count = cpu::query_blocks(shape, blocks);
  // The last queries attend to the most keys. The longest tasks run first, so that threads finish together.
  cpu::for_each_task(threads, heads * count, [&](std::int64_t task, int thread) {
    const std::int64_t head = task % heads, sequence = head / shape.heads;
    forward.run_block(sequence, head % shape.heads, cpu::query_block(shape, blocks, sequence, count - 1 - task / heads),
                      memory.data + thread * forward.layout.bytes);
  });
}

FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, Attention)

}  // namespace fsdp::device
