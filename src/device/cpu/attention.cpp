// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention's forward pass: tiles of scores by oneDNN, an online softmax in between (Dao 2023, FlashAttention-2).
#include "attention.hpp"

#include "../costs.hpp"

namespace fsdp::device {
namespace cpu {
namespace {

/// The matmuls of one extent of tiles: queries x keys, then probabilities x values.
struct ForwardKeys {
  MatmulKey scores, gather;
};

struct ForwardMatmuls {
  const Matmul* scores = nullptr;
  const Matmul* gather = nullptr;
};

/// One thread's scratch.
struct ForwardLayout {
  std::int64_t query = 0, key = 0, value = 0, scores = 0, out = 0, maximum = 0, sum = 0, matmul = 0;
  std::int64_t bytes = 0;
};

ForwardKeys forward_keys(const AttentionBlocks& blocks, const AttentionBlocks& tile, std::int64_t d, DType dtype) {
  const std::int64_t leading = tile_leading(blocks.keys);
  return {.scores = {.a = dtype,
                     .m = tile.queries,
                     .n = tile.keys,
                     .k = d,
                     .lda = d,
                     .ldb = d,
                     .ldc = leading,
                     .b_transposed = true,
                     .single_thread = true},
          .gather = {.a = dtype,
                     .m = tile.queries,
                     .n = d,
                     .k = tile.keys,
                     .lda = leading * size_of(DType::f32) / size_of(dtype),
                     .ldb = d,
                     .ldc = d,
                     .accumulate = true,
                     .single_thread = true}};
}

ForwardLayout forward_layout(Cpu::Stream& stream, const AttentionShape& shape, const AttentionBlocks& blocks,
                             DType dtype) {
  std::int64_t matmul_bytes = 0;
  for (const AttentionBlocks& tile : tile_extents(shape.sequence_length, blocks)) {
    const ForwardKeys keys = forward_keys(blocks, tile, shape.head_dim, dtype);
    for (const MatmulKey& key : {keys.scores, keys.gather})
      matmul_bytes = std::max(matmul_bytes, stream.cache().matmul_scratch(key));
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

/// One call: everything that its tasks read.
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

/// The tile's rows, each document's with the keys that it sees.
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
                      part.first = std::clamp<std::int64_t>(document.begin - first_key, 0, tile.columns);
                      attention_forward_kernels<T>().softmax(part);
                    });
}

/// All keys of one block of queries of one head.
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

int forward_threads(const Cpu::Stream& stream, const AttentionShape& shape, const AttentionBlocks& blocks) {
  return static_cast<int>(
      std::min<std::int64_t>(stream.threads(), shape.sequences * shape.heads * query_blocks(shape, blocks)));
}

}  // namespace

std::int64_t attention_forward_scratch(Cpu::Stream& stream, const AttentionShape& shape, DType dtype) {
  const AttentionBlocks blocks = attention_blocks(shape, false);
  return forward_threads(stream, shape, blocks) * forward_layout(stream, shape, blocks, dtype).bytes;
}

}  // namespace cpu

template <class T>
void Cpu::attention(Stream& stream, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k,
                    Tensor<const T> v, Tensor<T> out, Tensor<float> lse) {
  costs::require_attention(shape, q, k, v, out.shape(), lse.shape());
  stream.counters.attention_flops += costs::attention_flops(shape, false);
  if (shape.tokens() == 0) return;
  const cpu::AttentionBlocks blocks = cpu::attention_blocks(shape, false);
  cpu::Forward<T> forward{.shape = shape,
                          .blocks = blocks,
                          .layout = cpu::forward_layout(stream, shape, blocks, dtype_of<T>()),
                          .matmuls = {},
                          .q = q,
                          .k = k,
                          .v = v,
                          .out = out,
                          .lse = lse};
  for (const cpu::AttentionBlocks& tile : cpu::tile_extents(shape.sequence_length, blocks)) {
    const cpu::ForwardKeys keys = cpu::forward_keys(blocks, tile, shape.head_dim, dtype_of<T>());
    forward.matmuls.add(tile,
                        {.scores = &stream.cache().matmul(keys.scores), .gather = &stream.cache().matmul(keys.gather)});
  }
  const int threads = cpu::forward_threads(stream, shape, blocks);
  Arena::Frame frame(stream.arena());
  const auto scratch = frame.allocate<std::uint8_t>({threads * forward.layout.bytes}, MemoryKind::scratch);
  const std::int64_t heads = shape.sequences * shape.heads, count = cpu::query_blocks(shape, blocks);
  // The last queries see the most keys: longest tasks first, so that threads end together.
  cpu::for_each_task(threads, heads * count, [&](std::int64_t task, int thread) {
    const std::int64_t head = task % heads, sequence = head / shape.heads;
    forward.run_block(sequence, head % shape.heads, cpu::query_block(shape, blocks, sequence, count - 1 - task / heads),
                      reinterpret_cast<std::byte*>(scratch.data()) + thread * forward.layout.bytes);
  });
}

std::int64_t Cpu::attention_scratch(Stream& stream, const AttentionShape& shape, DType dtype, bool backward) {
  if (shape.tokens() == 0) return 0;
  return backward ? cpu::attention_backward_scratch(stream, shape, dtype)
                  : cpu::attention_forward_scratch(stream, shape, dtype);
}

template void Cpu::attention(Stream&, const AttentionShape&, Tensor<const float>, Tensor<const float>,
                             Tensor<const float>, Tensor<float>, Tensor<float>);
template void Cpu::attention(Stream&, const AttentionShape&, Tensor<const bf16>, Tensor<const bf16>, Tensor<const bf16>,
                             Tensor<bf16>, Tensor<float>);

}  // namespace fsdp::device
