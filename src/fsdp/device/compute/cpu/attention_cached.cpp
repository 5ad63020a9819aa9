// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention to the KV cache. The queries that share a key-value head process its keys and values together, a few rows
/// at a time, and read the cache in place. The operation is bound by memory bandwidth, so it does not need a oneDNN
/// matmul.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numbers>

#include "../../cpu/threads.hpp"
#include "attention.hpp"
#include "kernels/tables.hpp"

namespace fsdp::device {
namespace cpu {
namespace {

constexpr std::int64_t most_keys = 128;  // maximum number of keys per tile

/// The layout of one thread's scratch.
struct CachedLayout {
  std::int64_t scores = 0, out = 0, maximum = 0, sum = 0;
  std::int64_t bytes = 0;

  CachedLayout(std::int64_t group, std::int64_t head_dim) {
    ScratchLayout scratch;
    scores = scratch.place(group * tile_leading(most_keys), sizeof(float));
    out = scratch.place(group * head_dim, sizeof(float));
    maximum = scratch.place(group, sizeof(float));
    sum = scratch.place(group, sizeof(float));
    bytes = scratch.bytes();
  }
};

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

/// Computes all queries of one key-value head of one sequence.
template <class T>
void attend_to_kept(const CachedAttention<T>& op, std::int64_t sequence, std::int64_t kv_head,
                    const CachedLayout& layout, std::byte* scratch) {
  const AttentionForward<T>& pass = attention_forward_kernels<T>();
  const auto& rows = kernels<RowProductKernels>().of<T>();
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
  std::fill_n(tile.maximum, op.group(), -std::numeric_limits<float>::infinity());
  std::fill_n(tile.sum, op.group(), 0.0f);
  std::fill_n(tile.out, op.group() * d, 0.0f);
  for (std::int64_t begin = position + 1 - std::min(op.window > 0 ? op.window : op.capacity(), position + 1);
       begin <= position; begin += most_keys) {
    const std::int64_t count = std::min(most_keys, position + 1 - begin), row = first_row + begin;
    for (std::int64_t member = 0; member < op.group(); ++member) {  // all queries of the group attend to the same keys
      SoftmaxTile one = tile;
      one.scores += member * tile.leading;
      one.maximum += member;
      one.sum += member;
      one.out += member * d;
      one.columns = one.visible = count;
      rows.products(q + member * d, op.keys.row(row), d, d, one.scores, count);
      pass.softmax(one);
      rows.weighted_sum(reinterpret_cast<const T*>(one.scores), op.values.row(row), d, d, one.out, count);
    }
  }
  const Rows<T> out{op.out.row(sequence) + kv_head * op.group() * d, d, op.group(), d};
  pass.finish(tile, out, tile.maximum);  // log-sum-exps are not needed, so they overwrite `maximum`
}

}  // namespace
}  // namespace cpu

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const KeepHeads<T>& op) {
  cpu::require_places(op.positions, op.capacity());
  const std::int64_t d = op.kept.columns(), length = op.length();
  const cpu::Division tokens{.count = op.x.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, tokens, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t token = begin; token < end; ++token) {
      const std::int64_t sequence = token / length;
      const std::int64_t place = op.positions.numel() > 0 ? op.positions[sequence] : token % length;
      for (std::int64_t head = 0; head < op.heads(); ++head)
        std::copy_n(op.x.row(token) + head * d, d, op.kept.row((sequence * op.heads() + head) * op.capacity() + place));
    }
  });
}

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const CachedAttention<T>& op) {
  return cpu::threads_of(planner, op) * cpu::CachedLayout(op.group(), op.head_dim()).bytes;
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const CachedAttention<T>& op, Scratch memory) {
  cpu::require_places(op.positions, op.capacity());
  const cpu::CachedLayout layout(op.group(), op.head_dim());
  cpu::for_each_task(cpu::threads_of(stream, op), op.sequences() * op.kv_heads, [&](std::int64_t task, int thread) {
    cpu::attend_to_kept(op, task / op.kv_heads, task % op.kv_heads, layout, memory.data + thread * layout.bytes);
  });
}

FSDP_RUN_INSTANCES(Cpu, KeepHeads)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, CachedAttention)

}  // namespace fsdp::device
