// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's backward pass (Dao 2023, FlashAttention-2, algorithm 2); the outer loop is over queries, the inner over
/// keys.
///
/// Tiles are stored transposed, keys x queries, so that only the matmul for dq has a transposed left operand. A thread
/// accumulates dk and dv of a whole sequence in float; dq of a block of queries is complete after its last key. A unit
/// of work is one key-value head of one sequence. Units that do not divide evenly among the threads are split by blocks
/// of queries, and their partial sums are added in order.
#include <numeric>

#include "attention.hpp"

namespace fsdp::device {
namespace cpu {
namespace {

/// The query blocks of all heads of a group, distributed over parts that run concurrently.
struct QuerySplit {
  std::vector<std::int64_t> part;  ///< part of each block, by index member * query_blocks + block
  std::int64_t longest = 0;        ///< work of the largest part, as a number of keys
  std::int64_t total = 0;          ///< work of all parts, as a number of keys
};

/// Assigns the blocks in reverse order, since the last attends to the most keys, each to the part with the least work
/// so far. `keys`: number of keys of each block.
QuerySplit split_queries(std::int64_t parts, std::int64_t group, const std::vector<std::int64_t>& keys) {
  const std::int64_t query_blocks = std::ssize(keys);
  QuerySplit split{.part = std::vector<std::int64_t>(static_cast<std::size_t>(group * query_blocks))};
  std::vector<std::int64_t> load(static_cast<std::size_t>(parts), 0);
  for (std::int64_t block = query_blocks - 1; block >= 0; --block)
    for (std::int64_t member = 0; member < group; ++member) {
      const auto least = std::ranges::min_element(load);
      split.part[static_cast<std::size_t>(member * query_blocks + block)] = least - load.begin();
      *least += keys[static_cast<std::size_t>(block)];
    }
  split.longest = std::ranges::max(load);
  split.total = std::accumulate(load.begin(), load.end(), std::int64_t{0});
  return split;
}

/// One call, whose tasks share it.
template <class T>
struct Backward {
  const AttentionBackward<T>& op;
  const AttentionShape& shape = op.shape;
  AttentionBlocks blocks = attention_blocks(shape, true);
  std::int64_t d = shape.head_dim, group = shape.heads / shape.kv_heads;
  std::int64_t query_blocks = ceil_divide(shape.sequence_length, blocks.queries);
  /// Scores and output gradients times values; into dk and dv; into dq.
  TileMatmuls<3> matmuls = {};
  /// Offsets in the scratch of one slot, which one thread uses. dv follows dk, both [S, d].
  struct Layout {
    std::int64_t dk, dv, query, dout, key, value, scores, gradient, dq, lse, delta, matmul, bytes;
  } layout = {};
  std::byte* scratch = nullptr;

  std::array<MatmulKey, 3> keys_of(const AttentionBlocks& tile) const {
    const std::int64_t leading = tile_leading(blocks.queries);
    return {scores_matmul(dtype_of<T>(), tile.keys, tile.queries, d, leading),
            sums_matmul(dtype_of<T>(), tile.keys, tile.queries, d, leading),
            sums_matmul(dtype_of<T>(), tile.queries, tile.keys, d, leading, true)};
  }

  /// Sets the layout and returns the scratch bytes of one slot.
  std::int64_t plan(const Cpu::Planner& planner) {
    constexpr std::int64_t real = sizeof(float), size = sizeof(T);
    ScratchLayout slot;
    layout = {.dk = slot.place(shape.sequence_length * d, real),
              .dv = slot.place(shape.sequence_length * d, real),
              .query = slot.place(blocks.queries * d, size),
              .dout = slot.place(blocks.queries * d, size),
              .key = slot.place(blocks.keys * d, size),
              .value = slot.place(blocks.keys * d, size),
              .scores = slot.place(blocks.keys * tile_leading(blocks.queries), real),
              .gradient = slot.place(blocks.keys * tile_leading(blocks.queries), real),
              .dq = slot.place(blocks.queries * d, real),
              .lse = slot.place(blocks.queries, real),
              .delta = slot.place(blocks.queries, real),
              .matmul = slot.place(matmul_bytes(planner, *this), 1),
              .bytes = slot.bytes()};
    return layout.bytes;
  }

  template <class U>
  U* at(std::int64_t slot, std::int64_t offset) const {
    return reinterpret_cast<U*>(scratch + slot * layout.bytes + offset);
  }

  void clear(std::int64_t slot) const {
    std::fill_n(at<float>(slot, layout.dk), shape.sequence_length * d, 0.0f);
    std::fill_n(at<float>(slot, layout.dv), shape.sequence_length * d, 0.0f);
  }

  /// Computes dq of a block of queries of one member of the unit's group, and adds the block's contribution to dk and
  /// dv.
  void run_block(std::int64_t unit, std::int64_t member, std::int64_t block, std::int64_t slot) const {
    const auto& kernel = kernels<AttentionKernels>().of<T>();
    const std::int64_t sequence = unit / shape.kv_heads, kv_head = unit % shape.kv_heads;
    const std::int64_t head = kv_head * group + member, first = sequence * shape.sequence_length;
    const QueryBlock queries = query_block(shape, blocks, sequence, block);
    const auto rows = [&](const auto& matrix) {
      return head_rows(matrix, head, d, first + queries.begin, first + queries.end);
    };
    kernel.pack(rows(op.q), at<T>(slot, layout.query));
    kernel.pack(rows(op.dout), at<T>(slot, layout.dout));
    kernel.delta(rows(op.out), rows(op.dout), at<float>(slot, layout.delta));
    const float* const logs = op.lse.row(sequence * shape.heads + head) + queries.begin;
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
      kernel.pack(head_rows(op.k, kv_head, d, first + begin, first + end), at<T>(slot, layout.key));
      kernel.pack(head_rows(op.v, kv_head, d, first + begin, first + end), at<T>(slot, layout.value));
      tile.rows = end - begin;
      run_tile(tile, sequence, queries.begin, begin, slot);
    }
    kernel.store_sum(at<float>(slot, layout.dq), 1, 0, score_scale(shape), rows(op.dq));
  }

  void run_tile(const GradientTile& tile, std::int64_t sequence, std::int64_t first_query, std::int64_t first_key,
                std::int64_t slot) const {
    const auto& [scores, to_keys, to_query] = matmuls.of({.queries = tile.columns, .keys = tile.rows});
    std::byte* const work = at<std::byte>(slot, layout.matmul);
    const T* const key = at<T>(slot, layout.key);
    const T* const query = at<T>(slot, layout.query);
    const T* const output_gradient = at<T>(slot, layout.dout);
    run(*scores, key, query, tile.scores, work);
    run(*scores, at<T>(slot, layout.value), output_gradient, tile.gradient, work);
    gradient(tile, sequence, first_query, first_key);
    run(*to_keys, tile.scores, output_gradient, at<float>(slot, layout.dv) + first_key * d, work);
    run(*to_keys, tile.gradient, query, at<float>(slot, layout.dk) + first_key * d, work);
    run(*to_query, tile.gradient, key, at<float>(slot, layout.dq), work);
  }

  /// Computes the gradient of the tile's rows, document by document, with the queries that attend to each document.
  void gradient(const GradientTile& tile, std::int64_t sequence, std::int64_t first_query,
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
                        kernels<AttentionKernels>().of<T>().gradient(part);
                      });
  }

  /// Writes keys [begin, end) of dk and dv: the sum over the first `slots` slots from `slot` on.
  void store(std::int64_t unit, std::int64_t slot, std::int64_t slots, std::int64_t begin, std::int64_t end) const {
    const auto& kernel = kernels<AttentionKernels>().of<T>();
    const std::int64_t first = unit / shape.kv_heads * shape.sequence_length, head = unit % shape.kv_heads;
    const std::int64_t distance = layout.bytes / size_of(DType::f32);
    kernel.store_sum(at<float>(slot, layout.dk) + begin * d, slots, distance, score_scale(shape),
                     head_rows(op.dk, head, d, first + begin, first + end));
    kernel.store_sum(at<float>(slot, layout.dv) + begin * d, slots, distance, 1.0f,
                     head_rows(op.dv, head, d, first + begin, first + end));
  }

  void run_whole(std::int64_t unit, std::int64_t slot) const {
    clear(slot);
    for (std::int64_t member = 0; member < group; ++member)
      for (std::int64_t block = 0; block < query_blocks; ++block) run_block(unit, member, block, slot);
    store(unit, slot, 1, 0, shape.sequence_length);
  }

  QuerySplit split(std::int64_t unit, int parts) const {
    std::vector<std::int64_t> keys;
    for (std::int64_t block = 0; block < query_blocks; ++block) {
      const QueryBlock queries = query_block(shape, blocks, unit / shape.kv_heads, block);
      keys.push_back(queries.end - queries.first_key);
    }
    return split_queries(parts, group, keys);
  }

  /// Computes one unit with all threads: part p of its queries in slot p, then sums the slots.
  void run_split(const QuerySplit& split, int threads, std::int64_t unit) const {
    for_each_task(threads, threads, [&](std::int64_t part, int) {
      clear(part);
      for (std::int64_t index = 0; index < std::ssize(split.part); ++index)
        if (split.part[static_cast<std::size_t>(index)] == part)
          run_block(unit, index / query_blocks, index % query_blocks, part);
    });
    for_each_task(threads, ceil_divide(shape.sequence_length, blocks.keys), [&](std::int64_t block, int) {
      store(unit, 0, threads, block * blocks.keys, std::min((block + 1) * blocks.keys, shape.sequence_length));
    });
  }

  /// Distributes whole units over threads as long as they occupy all threads. Splits the remaining units if they then
  /// finish earlier.
  void run_all(int threads) const {
    const std::int64_t units = shape.sequences * shape.kv_heads, rest = units % threads;
    std::vector<QuerySplit> splits;
    std::int64_t whole = 0, parts = 0;  // work of the slowest thread on the remaining units, if they run whole or split
    for (std::int64_t unit = units - rest; unit < units; ++unit) {
      splits.push_back(split(unit, threads));
      whole = std::max(whole, splits.back().total);
      parts += splits.back().longest;
    }
    const std::int64_t whole_units = parts >= whole ? units : units - rest;
    for_each_task(threads, whole_units, [&](std::int64_t unit, int thread) { run_whole(unit, thread); });
    for (std::int64_t unit = whole_units; unit < units; ++unit)
      run_split(splits[static_cast<std::size_t>(unit - whole_units)], threads, unit);
  }
};

}  // namespace
}  // namespace cpu

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const AttentionBackward<T>& op) {
  if (op.shape.tokens() == 0) return 0;
  return planner.threads() * cpu::Backward<T>{.op = op}.plan(planner);
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AttentionBackward<T>& op, Scratch memory) {
  if (op.shape.tokens() == 0) return;
  cpu::Backward<T> backward{.op = op, .scratch = memory.data};
  backward.plan(stream);
  backward.matmuls.make(stream, backward);
  backward.run_all(stream.threads());
}

FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, AttentionBackward)

}  // namespace fsdp::device
