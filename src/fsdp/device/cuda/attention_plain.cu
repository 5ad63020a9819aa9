// SPDX-License-Identifier: Apache-2.0
/// @file
/// Attention with one warp per row: the reference for the tensor-core kernels, and the fallback if they do not support
/// a call.
#include "attention.cuh"

namespace fsdp::device::cuda {
namespace {

/// A warp's task: a token and a head.
struct Task {
  std::int64_t token, head, origin;
  std::int32_t place;  ///< origin: the sequence's first row; place: the token's index in the sequence
  __device__ __forceinline__ Task(std::int64_t index, std::int64_t heads, std::int64_t length)
      : token(index / heads),
        head(index % heads),
        origin(token / length * length),
        place(static_cast<std::int32_t>(token - origin)) {}
};

/// Calls body(task) for every token and head.
template <class Body>
__device__ __forceinline__ void for_tasks(const AttentionSizes& s, std::int64_t heads, const Body& body) {
  const std::int64_t count = s.sequences * s.length * heads;
  for (std::int64_t i = thread_of_grid() / warp; i < count; i += threads_of_grid() / warp)
    body(Task(i, heads, s.length));
}

__device__ __forceinline__ std::int64_t statistic(const AttentionSizes& s, const Task& task, std::int64_t head) {
  return (task.origin / s.length * s.heads + head) * s.length + task.place;
}

template <class T, int N>
__global__ void forward(AttentionSizes s, Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> out, float* lse) {
  for_tasks(s, s.heads, [&](const Task& task) {
    const std::int64_t kv = task.head / s.group() * s.head_dim;
    LaneRow<N> query, key, value, sum;
    query.load(q.row(task.token) + task.head * s.head_dim, s.head_dim);
    float most = -INFINITY, total = 0;
    for (std::int32_t j = s.first_key(task.origin, task.place); j <= task.place; ++j) {
      key.load(k.row(task.origin + j) + kv, s.head_dim);
      value.load(v.row(task.origin + j) + kv, s.head_dim);
      const float score = query.dot(key) * s.scale;
      const float larger = fmaxf(most, score), kept = expf(most - larger), p = expf(score - larger);
      sum.add(value, kept, p);
      total = total * kept + p;
      most = larger;
    }
    sum.store(out.row(task.token) + task.head * s.head_dim, s.head_dim, 1.0f / total);
    if (threadIdx.x % warp == 0) lse[statistic(s, task, task.head)] = most + logf(total);
  });
}

/// AttentionBackward's arguments for these kernels; register use depends on the layout, so BackwardArguments is a
/// separate struct.
template <class T>
struct Arguments {
  Rows<const T> q, k, v, out, dout;
  const float* lse;
  Rows<T> dq, dk, dv;
  float* products;
};
template <class T>
Arguments<T> arguments(const AttentionBackward<T>& op, float* products) {
  return {op.q, op.k, op.v, op.out, op.dout, op.lse.data(), op.dq, op.dk, op.dv, products};
}

template <class T, int N>
__global__ void multiply_out(AttentionSizes s, Arguments<T> b) {
  for_tasks(s, s.heads, [&](const Task& task) {
    LaneRow<N> out, dout;
    out.load(b.out.row(task.token) + task.head * s.head_dim, s.head_dim);
    dout.load(b.dout.row(task.token) + task.head * s.head_dim, s.head_dim);
    const float product = out.dot(dout);
    if (threadIdx.x % warp == 0) b.products[statistic(s, task, task.head)] = product;
  });
}

template <class T, int N>
__global__ void backward_queries(AttentionSizes s, Arguments<T> b) {
  for_tasks(s, s.heads, [&](const Task& task) {
    const std::int64_t own = task.head * s.head_dim, kv = task.head / s.group() * s.head_dim;
    const float lse = b.lse[statistic(s, task, task.head)], product = b.products[statistic(s, task, task.head)];
    LaneRow<N> query, dout, key, value, sum;
    query.load(b.q.row(task.token) + own, s.head_dim);
    dout.load(b.dout.row(task.token) + own, s.head_dim);
    for (std::int32_t j = s.first_key(task.origin, task.place); j <= task.place; ++j) {
      key.load(b.k.row(task.origin + j) + kv, s.head_dim);
      value.load(b.v.row(task.origin + j) + kv, s.head_dim);
      const float p = expf(query.dot(key) * s.scale - lse);
      sum.add(key, 1, p * (dout.dot(value) - product));
    }
    sum.store(b.dq.row(task.token) + own, s.head_dim, s.scale);
  });
}

template <class T, int N>
__global__ void backward_keys(AttentionSizes s, Arguments<T> b) {
  for_tasks(s, s.kv_heads, [&](const Task& task) {
    const std::int64_t kv = task.head * s.head_dim;
    LaneRow<N> key, value, query, dout, key_sum, value_sum;
    key.load(b.k.row(task.token) + kv, s.head_dim);
    value.load(b.v.row(task.token) + kv, s.head_dim);
    for (std::int64_t head = task.head * s.group(); head < (task.head + 1) * s.group(); ++head)
      for (std::int32_t i = task.place; i < s.length && s.first_key(task.origin, i) <= task.place; ++i) {
        const std::int64_t at = (task.origin / s.length * s.heads + head) * s.length + i;
        query.load(b.q.row(task.origin + i) + head * s.head_dim, s.head_dim);
        dout.load(b.dout.row(task.origin + i) + head * s.head_dim, s.head_dim);
        const float p = expf(query.dot(key) * s.scale - b.lse[at]);
        value_sum.add(dout, 1, p);
        key_sum.add(query, 1, p * (dout.dot(value) - b.products[at]));
      }
    key_sum.store(b.dk.row(task.token) + kv, s.head_dim, s.scale);
    value_sum.store(b.dv.row(task.token) + kv, s.head_dim, 1);
  });
}

Grid grid(const AttentionSizes& s, std::int64_t heads) {
  return grid_of_elements(1, s.sequences * s.length * heads * warp);
}

}  // namespace

template <class T>
void attention_plain(Lane lane, const AttentionSizes& s, const Attention<T>& op) {
  with_columns(s.head_dim, [&](auto n) {
    launch(lane, "attention", forward<T, decltype(n)::value>, grid(s, s.heads), 0, s, Rows<const T>(op.q),
           Rows<const T>(op.k), Rows<const T>(op.v), Rows<T>(op.out), op.lse.data());
  });
}

template <class T>
void attention_products(Lane lane, const AttentionSizes& s, const AttentionBackward<T>& op, float* products) {
  with_columns(s.head_dim, [&](auto n) {
    launch(lane, "attention_backward", multiply_out<T, decltype(n)::value>, grid(s, s.heads), 0, s,
           arguments(op, products));
  });
}

template <class T>
void attention_backward_plain(Lane lane, const AttentionSizes& s, const AttentionBackward<T>& op, float* products) {
  with_columns(s.head_dim, [&](auto n) {
    constexpr int columns = decltype(n)::value;
    const Arguments<T> b = arguments(op, products);
    launch(lane, "attention_backward", backward_queries<T, columns>, grid(s, s.heads), 0, s, b);
    launch(lane, "attention_backward", backward_keys<T, columns>, grid(s, s.kv_heads), 0, s, b);
  });
}

#define FSDP_ATTENTION_PLAIN(T)                                                                       \
  template void attention_plain(Lane, const AttentionSizes&, const Attention<T>&);                    \
  template void attention_products(Lane, const AttentionSizes&, const AttentionBackward<T>&, float*); \
  template void attention_backward_plain(Lane, const AttentionSizes&, const AttentionBackward<T>&, float*);
FSDP_ATTENTION_PLAIN(float)
FSDP_ATTENTION_PLAIN(bf16)
FSDP_ATTENTION_PLAIN(f16)

}  // namespace fsdp::device::cuda
