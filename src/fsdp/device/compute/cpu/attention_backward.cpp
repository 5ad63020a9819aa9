// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's backward pass (Dao 2023, FlashAttention-2, algorithm 2); the outer loop is over queries, the inner over
/// keys.
///
/// Tiles are stored transposed, keys x queries, so that only the matmul for dq has a transposed left operand. A thread
/// accumulates dk and dv of a whole sequence in float; dq of a block of queries is complete after its last key. A unit
/// of work is one key-value head of one sequence. Units that do not divide evenly among the threads are split by blocks
/// of queries, and their partial sums are added in order.
#include "attention.hpp"

namespace fsdp::device {
namespace cpu {
namespace {

struct BackwardKeys {
  MatmulKey scores;    ///< keys x queries, and values x dout
  MatmulKey to_keys;   ///< accumulates into dk and dv
  MatmulKey to_query;  ///< accumulates into dq; its left operand is transposed
};

struct BackwardMatmuls {
  const Matmul* scores = nullptr;
  const Matmul* to_keys = nullptr;
  const Matmul* to_query = nullptr;
};

/// The layout of one thread's scratch. dv follows dk, both [S, d].
struct BackwardLayout {
  std::int64_t dk = 0, dv = 0, query = 0, dout = 0, key = 0, value = 0, scores = 0, gradient = 0, dq = 0, lse = 0,
               delta = 0, matmul = 0;
  std::int64_t bytes = 0;
};

BackwardKeys backward_keys(const AttentionBlocks& blocks, const AttentionBlocks& tile, std::int64_t d, DType dtype) {
  const std::int64_t leading = tile_leading(blocks.queries);
  return {.scores = scores_matmul(dtype, tile.keys, tile.queries, d, leading),
          .to_keys = sums_matmul(dtype, tile.keys, tile.queries, d, leading),
          .to_query = sums_matmul(dtype, tile.queries, tile.keys, d, leading, true)};
}

BackwardLayout backward_layout(const Cpu::Planner& planner, const AttentionShape& shape, const AttentionBlocks& blocks,
                               DType dtype) {
  std::int64_t matmul_bytes = 0;
  for (const AttentionBlocks& tile : tile_extents(shape.sequence_length, blocks)) {
    const BackwardKeys keys = backward_keys(blocks, tile, shape.head_dim, dtype);
    for (const MatmulKey& key : {keys.scores, keys.to_keys, keys.to_query})
      matmul_bytes = std::max(matmul_bytes, cache_of(planner).matmul_scratch(key));
  }
  const std::int64_t d = shape.head_dim, real = size_of(DType::f32);
  ScratchLayout scratch;
  BackwardLayout layout;
  layout.dk = scratch.place(shape.sequence_length * d, real);
  layout.dv = scratch.place(shape.sequence_length * d, real);
  layout.query = scratch.place(blocks.queries * d, size_of(dtype));
  layout.dout = scratch.place(blocks.queries * d, size_of(dtype));
  layout.key = scratch.place(blocks.keys * d, size_of(dtype));
  layout.value = scratch.place(blocks.keys * d, size_of(dtype));
  layout.scores = scratch.place(blocks.keys * tile_leading(blocks.queries), real);
  layout.gradient = scratch.place(blocks.keys * tile_leading(blocks.queries), real);
  layout.dq = scratch.place(blocks.queries * d, real);
  layout.lse = scratch.place(blocks.queries, real);
  layout.delta = scratch.place(blocks.queries, real);
  layout.matmul = scratch.place(matmul_bytes, 1);
  layout.bytes = scratch.bytes();
  return layout;
}

/// The arguments of one call, which are shared by all its tasks.
template <class T>
struct Backward {
  const AttentionShape& shape;
  AttentionBlocks blocks;
  BackwardLayout layout;
  ByExtent<BackwardMatmuls> matmuls;
  Tensor<const T> q, k, v, out, dout;
  Tensor<const float> lse;
  Tensor<T> dq, dk, dv;
  std::byte* scratch;

  std::int64_t group() const { return shape.heads / shape.kv_heads; }
  std::int64_t query_blocks() const { return ceil_divide(shape.sequence_length, blocks.queries); }
  template <class U>
  U* at(std::int64_t slot, std::int64_t offset) const {
    return reinterpret_cast<U*>(scratch + slot * layout.bytes + offset);
  }

  void clear(std::int64_t slot) const;
  void run_block(std::int64_t sequence, std::int64_t head, const QueryBlock& queries, std::int64_t slot) const;
  void run_tile(const GradientTile& tile, std::int64_t sequence, std::int64_t first_query, std::int64_t first_key,
                std::int64_t slot) const;
  void gradient(const GradientTile& tile, std::int64_t sequence, std::int64_t first_query,
                std::int64_t first_key) const;
  QuerySplit split(std::int64_t unit, int parts) const;
  void store(std::int64_t unit, std::int64_t slot, std::int64_t slots, std::int64_t begin, std::int64_t end) const;
  void run_whole(std::int64_t unit, std::int64_t slot) const;
};

template <class T>
void Backward<T>::clear(std::int64_t slot) const {
  std::fill_n(at<float>(slot, layout.dk), shape.sequence_length * shape.head_dim, 0.0f);
  std::fill_n(at<float>(slot, layout.dv), shape.sequence_length * shape.head_dim, 0.0f);
}

/// Computes dq of one block of queries and adds the block's contribution to dk and dv.
template <class T>
void Backward<T>::run_block(std::int64_t sequence, std::int64_t head, const QueryBlock& queries,
                            std::int64_t slot) const {
  const AttentionBackward<T>& pass = attention_backward_kernels<T>();
  const auto pack = attention_forward_kernels<T>().pack;
  const std::int64_t d = shape.head_dim, first = sequence * shape.sequence_length, kv_head = head / group();
  const auto rows = [&](const auto& matrix) {
    return head_rows(matrix, head, d, first + queries.begin, first + queries.end);
  };
  pack(rows(q), at<T>(slot, layout.query));
  pack(rows(dout), at<T>(slot, layout.dout));
  pass.delta(rows(out), rows(dout), at<float>(slot, layout.delta));
  const float* const logs = lse.row(sequence * shape.heads + head) + queries.begin;
  std::transform(logs, logs + queries.queries(), at<float>(slot, layout.lse),
                 [](float value) { return value * std::numbers::log2e_v<float>; });
  std::fill_n(at<float>(slot, layout.dq), queries.queries() * d, 0.0f);
  GradientTile tile{.scores = at<float>(slot, layout.scores),
                    .gradient = at<float>(slot, layout.gradient),
                    .columns = queries.queries(),
                    .leading = tile_leading(blocks.queries),
                    .scale = std::numbers::log2e_v<float> * score_scale(shape),
                    .lse = at<float>(slot, layout.lse),
                    .delta = at<float>(slot, layout.delta)};
  for (std::int64_t begin = queries.first_key; begin < queries.end; begin += blocks.keys) {
    const std::int64_t end = std::min(begin + blocks.keys, queries.end);
    pack(head_rows(k, kv_head, d, first + begin, first + end), at<T>(slot, layout.key));
    pack(head_rows(v, kv_head, d, first + begin, first + end), at<T>(slot, layout.value));
    tile.rows = end - begin;
    run_tile(tile, sequence, queries.begin, begin, slot);
  }
  pass.store_sum(at<float>(slot, layout.dq), 1, 0, score_scale(shape), rows(dq));
}

/// Computes the gradient of the tile's rows, document by document, with the queries that attend to each document.
template <class T>
void Backward<T>::gradient(const GradientTile& tile, std::int64_t sequence, std::int64_t first_query,
                           std::int64_t first_key) const {
  for_each_document(shape, sequence, first_key, first_key + tile.rows,
                    [&](std::int64_t begin, std::int64_t end, const Document& document) {
                      const std::int64_t row = begin - first_key;
                      GradientTile part = tile;
                      part.scores += row * tile.leading;
                      part.gradient += row * tile.leading;
                      part.rows = end - begin;
                      part.hidden = begin - first_query;
                      part.left = part.hidden + window_of(shape);
                      part.seen = std::clamp<std::int64_t>(document.end - first_query, 0, tile.columns);
                      attention_backward_kernels<T>().gradient(part);
                    });
}

template <class T>
void Backward<T>::run_tile(const GradientTile& tile, std::int64_t sequence, std::int64_t first_query,
                           std::int64_t first_key, std::int64_t slot) const {
  const BackwardMatmuls& matmul = matmuls(tile.columns, tile.rows);
  std::byte* const work = at<std::byte>(slot, layout.matmul);
  const T* const key = at<T>(slot, layout.key);
  const T* const query = at<T>(slot, layout.query);
  const T* const output_gradient = at<T>(slot, layout.dout);
  run(*matmul.scores, key, query, tile.scores, work);
  run(*matmul.scores, at<T>(slot, layout.value), output_gradient, tile.gradient, work);
  gradient(tile, sequence, first_query, first_key);
  run(*matmul.to_keys, tile.scores, output_gradient, at<float>(slot, layout.dv) + first_key * shape.head_dim, work);
  run(*matmul.to_keys, tile.gradient, query, at<float>(slot, layout.dk) + first_key * shape.head_dim, work);
  run(*matmul.to_query, tile.gradient, key, at<float>(slot, layout.dq), work);
}

/// Writes keys [begin, end) of dk and dv: the sum over `slots` thread slots, starting with `slot`.
template <class T>
void Backward<T>::store(std::int64_t unit, std::int64_t slot, std::int64_t slots, std::int64_t begin,
                        std::int64_t end) const {
  const AttentionBackward<T>& pass = attention_backward_kernels<T>();
  const std::int64_t d = shape.head_dim, first = unit / shape.kv_heads * shape.sequence_length;
  const std::int64_t head = unit % shape.kv_heads, distance = layout.bytes / size_of(DType::f32);
  pass.store_sum(at<float>(slot, layout.dk) + begin * d, slots, distance, score_scale(shape),
                 head_rows(dk, head, d, first + begin, first + end));
  pass.store_sum(at<float>(slot, layout.dv) + begin * d, slots, distance, 1.0f,
                 head_rows(dv, head, d, first + begin, first + end));
}

template <class T>
void Backward<T>::run_whole(std::int64_t unit, std::int64_t slot) const {
  clear(slot);
  for (std::int64_t member = 0; member < group(); ++member)
    for (std::int64_t block = 0; block < query_blocks(); ++block)
      run_block(unit / shape.kv_heads, unit % shape.kv_heads * group() + member,
                query_block(shape, blocks, unit / shape.kv_heads, block), slot);
  store(unit, slot, 1, 0, shape.sequence_length);
}

template <class T>
QuerySplit Backward<T>::split(std::int64_t unit, int parts) const {
  std::vector<std::int64_t> keys;
  for (std::int64_t block = 0; block < query_blocks(); ++block) {
    const QueryBlock queries = query_block(shape, blocks, unit / shape.kv_heads, block);
    keys.push_back(queries.end - queries.first_key);
  }
  return split_queries(parts, group(), keys);
}

/// Computes one unit with all threads: part p of its queries in slot p, then sums the slots.
template <class T>
void run_split(const Backward<T>& backward, const QuerySplit& split, int threads, std::int64_t unit) {
  const AttentionShape& shape = backward.shape;
  for_each_task(threads, threads, [&](std::int64_t part, int) {
    backward.clear(part);
    for (std::int64_t index = 0; index < std::ssize(split.part); ++index) {
      if (split.part[static_cast<std::size_t>(index)] != part) continue;
      const std::int64_t head = unit % shape.kv_heads * backward.group() + index / backward.query_blocks();
      backward.run_block(unit / shape.kv_heads, head,
                         query_block(shape, backward.blocks, unit / shape.kv_heads, index % backward.query_blocks()),
                         part);
    }
  });
  const std::int64_t rows = backward.blocks.keys;
  for_each_task(threads, ceil_divide(shape.sequence_length, rows), [&](std::int64_t block, int) {
    backward.store(unit, 0, threads, block * rows, std::min((block + 1) * rows, shape.sequence_length));
  });
}

/// Distributes whole units over threads as long as they occupy all threads. Splits the remaining units if they then
/// finish earlier.
template <class T>
void run_all(const Backward<T>& backward, int threads) {
  const std::int64_t units = backward.shape.sequences * backward.shape.kv_heads, rest = units % threads;
  std::vector<QuerySplit> splits;
  std::int64_t whole = 0, split = 0;  // work of the slowest thread on the remaining units, if they run whole or split
  for (std::int64_t unit = units - rest; unit < units; ++unit) {
    splits.push_back(backward.split(unit, threads));
    whole = std::max(whole, splits.back().total);
    split += splits.back().longest;
  }
  const std::int64_t whole_units = split >= whole ? units : units - rest;
  for_each_task(threads, whole_units, [&](std::int64_t unit, int thread) { backward.run_whole(unit, thread); });
  for (std::int64_t unit = whole_units; unit < units; ++unit)
    run_split(backward, splits[static_cast<std::size_t>(unit - whole_units)], threads, unit);
}

}  // namespace

}  // namespace cpu

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const AttentionBackward<T>& op) {
  if (op.shape.tokens() == 0) return 0;
  const cpu::AttentionBlocks blocks = cpu::attention_blocks(op.shape, true);
  return planner.threads() * cpu::backward_layout(planner, op.shape, blocks, dtype_of<T>()).bytes;
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AttentionBackward<T>& op, Scratch memory) {
  const AttentionShape& shape = op.shape;
  if (shape.tokens() == 0) return;
  const cpu::AttentionBlocks blocks = cpu::attention_blocks(shape, true);
  cpu::Backward<T> backward{.shape = shape,
                            .blocks = blocks,
                            .layout = cpu::backward_layout(stream, shape, blocks, dtype_of<T>()),
                            .matmuls = {},
                            .q = op.q,
                            .k = op.k,
                            .v = op.v,
                            .out = op.out,
                            .dout = op.dout,
                            .lse = op.lse,
                            .dq = op.dq,
                            .dk = op.dk,
                            .dv = op.dv,
                            .scratch = memory.data};
  Cpu::Planner::Cache& cache = cpu::cache_of(stream);
  for (const cpu::AttentionBlocks& tile : cpu::tile_extents(shape.sequence_length, blocks)) {
    const cpu::BackwardKeys keys = cpu::backward_keys(blocks, tile, shape.head_dim, dtype_of<T>());
    backward.matmuls.add(tile, {.scores = &cache.matmul(keys.scores),
                                .to_keys = &cache.matmul(keys.to_keys),
                                .to_query = &cache.matmul(keys.to_query)});
  }
  cpu::run_all(backward, stream.threads());
}

FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, AttentionBackward)

}  // namespace fsdp::device
