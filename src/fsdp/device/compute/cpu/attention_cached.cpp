// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention to the KV cache. The queries that share a key-value head process its keys and values together, a few rows
/// at a time, and read the cache in place. The operation is bound by memory bandwidth, so it does not need a oneDNN
/// matmul.
#include <algorithm>
#include <cmath>
#include <cstddef>

#include "../../cpu/threads.hpp"
#include "attention.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {
namespace cpu {
namespace {

constexpr std::int64_t most_keys = 128;  // maximum number of keys per tile

/// Offsets in one thread's scratch.
struct CachedLayout {
  std::int64_t scores, out, maximum, sum, bytes;
};

template <class T>
CachedLayout layout_of(const CachedAttention<T>& op) {
  constexpr std::int64_t real = sizeof(float);
  ScratchLayout thread;
  return {.scores = thread.place(op.group() * tile_leading(most_keys), real),
          .out = thread.place(op.group() * op.head_dim(), real),
          .maximum = thread.place(op.group(), real),
          .sum = thread.place(op.group(), real),
          .bytes = thread.bytes()};
}

/// Throws LogicError for a position outside the cache. Called before the threads start, since they must not throw.
void require_places(Tensor<const std::int32_t> positions, std::int64_t capacity) {
  for (std::int64_t i = 0; i < positions.numel(); ++i)
    require(positions[i] >= 0 && positions[i] < capacity, "position ", positions[i], " of sequence ", i,
            " is not among the ", capacity, " that can be kept");
}

template <class T>
int threads_of(const Cpu::Planner& planner, const CachedAttention<T>& op) {
  return static_cast<int>(std::min<std::int64_t>(planner.threads(), op.sequences() * op.kv_heads));
}

template <class T>
void attend_to_cached(const CachedAttention<T>& op, std::int64_t sequence, std::int64_t kv_head,
                      const CachedLayout& layout, std::byte* scratch) {
  const auto& kernel = kernels<AttentionKernels>().of<T>();
  const auto& rows = kernels<RowKernels>().of<T>();
  const std::int64_t d = op.head_dim(), position = op.positions[sequence];
  const std::int64_t first_row = (sequence * op.kv_heads + kv_head) * op.capacity();
  const T* const q = op.q.row(sequence) + kv_head * op.group() * d;
  SoftmaxTile tile{.scores = reinterpret_cast<float*>(scratch + layout.scores),
                   .rows = 1,
                   .leading = tile_leading(most_keys),
                   .scale = std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(d)),
                   .maximum = reinterpret_cast<float*>(scratch + layout.maximum),
                   .sum = reinterpret_cast<float*>(scratch + layout.sum),
                   .out = reinterpret_cast<float*>(scratch + layout.out),
                   .head_dim = d};
  clear(tile, op.group());
  for (std::int64_t begin = position + 1 - std::min(op.window > 0 ? op.window : op.capacity(), position + 1);
       begin <= position; begin += most_keys) {
    const std::int64_t count = std::min(most_keys, position + 1 - begin), row = first_row + begin;
    for (std::int64_t member = 0; member < op.group(); ++member) {  // all queries of the group attend to the same keys
      SoftmaxTile one = rows_from(tile, member);
      one.columns = one.visible = count;
      rows.products(q + member * d, op.keys.row(row), d, d, one.scores, count);
      kernel.softmax(one);
      rows.weighted_sum(reinterpret_cast<const T*>(one.scores), op.values.row(row), d, d, one.out, count);
    }
  }
  const Rows<T> out{op.out.row(sequence) + kv_head * op.group() * d, d, op.group(), d};
  kernel.finish(tile, out, tile.maximum);  // log-sum-exps are not needed, so they overwrite `maximum`
}

}  // namespace
}  // namespace cpu

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const KeepHeads<T>& op) {
  cpu::require_places(op.positions, op.capacity());
  const std::int64_t d = op.kept.columns(), length = op.length();
  cpu::for_rows(stream, op.x.rows(), op.cost().bytes, [&](std::int64_t token) {
    const std::int64_t sequence = token / length;
    const std::int64_t place = op.positions.numel() > 0 ? op.positions[sequence] : token % length;
    for (std::int64_t head = 0; head < op.heads(); ++head)
      std::copy_n(op.x.row(token) + head * d, d, op.kept.row((sequence * op.heads() + head) * op.capacity() + place));
  });
}

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const CachedAttention<T>& op) {
  return cpu::threads_of(planner, op) * cpu::layout_of(op).bytes;
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const CachedAttention<T>& op, Scratch memory) {
  cpu::require_places(op.positions, op.capacity());
  const cpu::CachedLayout layout = cpu::layout_of(op);
  cpu::for_each_task(cpu::threads_of(stream, op), op.sequences() * op.kv_heads, [&](std::int64_t task, int thread) {
    cpu::attend_to_cached(op, task / op.kv_heads, task % op.kv_heads, layout, memory.data + thread * layout.bytes);
  });
}

FSDP_RUN_INSTANCES(Cpu, KeepHeads)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, CachedAttention)

}  // namespace fsdp::device
