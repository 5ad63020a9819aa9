// SPDX-License-Identifier: Apache-2.0
/// @file
/// What an operation asks of its arguments and what it costs, in one place for the devices that compute and the one
/// that counts (Meta), so that the two cannot differ. Each function checks the shapes, throwing LogicError, and returns
/// a Cost.
#pragma once

#include <algorithm>
#include <cstdint>

#include <fsdp/core/checked.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/tensor.hpp>
#include <fsdp/device/operations.hpp>

namespace fsdp::device::costs {

/// Least memory traffic, and scratch that the CPU takes from the arena while it works.
struct Cost {
  std::int64_t bytes = 0;
  std::int64_t scratch = 0;
};

/// Elements that sum_of_squares adds up before it starts a new partial sum.
inline constexpr std::int64_t sum_chunk = 16384;

/// Elements between the partial sums of two threads in rms_norm_backward.
constexpr std::int64_t partial_stride(std::int64_t columns) { return round_up(columns, 16); }

template <class X, class Y>
void require_same_shape(const char* operation, const Tensor<X>& x, const Tensor<Y>& y) {
  require(x.shape() == y.shape(), operation, ": tensors of ", x.numel(), " and ", y.numel(),
          " elements; both must have one shape");
}

template <class A, class C>
MatmulRecord matmul(const Operand<A>& a, const Operand<A>& b, const Tensor<C>& c, Write write) {
  require(a.tensor.rank() == 2 && b.tensor.rank() == 2 && c.rank() == 2, "matmul: every operand needs rank 2");
  require(a.columns() == b.rows() && c.rows() == a.rows() && c.columns() == b.columns(), "matmul: [", a.rows(), ", ",
          a.columns(), "] x [", b.rows(), ", ", b.columns(), "] does not give [", c.rows(), ", ", c.columns(), "]");
  return {.m = a.rows(),
          .n = b.columns(),
          .k = a.columns(),
          .a_transposed = a.transposed,
          .b_transposed = b.transposed,
          .operands = dtype_of<A>(),
          .result = dtype_of<C>(),
          .accumulate = write == Write::accumulate};
}

inline void count(Counters& counters, const MatmulRecord& record) {
  counters.matmul_flops += 2 * checked_multiply(checked_multiply(record.m, record.n), record.k);
  if (counters.matmuls != nullptr) counters.matmuls->push_back(record);
}

template <class T>
Cost rms_norm(const Tensor<const T>& x, const Tensor<const T>& w, const Tensor<T>& y, const Tensor<float>& rstd) {
  require_same_shape("rms_norm", x, y);
  require(x.rank() == 2 && w.numel() == x.columns() && rstd.numel() == x.rows(), "rms_norm: x [", x.rows(), ", ",
          x.columns(), "] with ", w.numel(), " weights and ", rstd.numel(), " rstd");
  return {.bytes = x.bytes() + w.bytes() + y.bytes() + rstd.bytes()};
}

template <class T>
Cost rms_norm_backward(const Tensor<const T>& x, const Tensor<const T>& w, const Tensor<const float>& rstd,
                       const Tensor<const T>& dy, const Tensor<T>& dx, Write dx_write, const Tensor<float>& dw,
                       Write dw_write, int threads) {
  require_same_shape("rms_norm_backward", x, dy);
  require_same_shape("rms_norm_backward", x, dx);
  require(x.rank() == 2 && w.numel() == x.columns() && dw.numel() == x.columns() && rstd.numel() == x.rows(),
          "rms_norm_backward: x [", x.rows(), ", ", x.columns(), "] with ", w.numel(), " weights, ", dw.numel(),
          " gradients and ", rstd.numel(), " rstd");
  const auto times = [](Write write) { return write == Write::accumulate ? 2 : 1; };
  return {.bytes = x.bytes() + w.bytes() + rstd.bytes() + dy.bytes() + times(dx_write) * dx.bytes() +
                   times(dw_write) * dw.bytes(),
          .scratch = (threads > 1 && dw.data() != nullptr ? 2 : 1) * threads * partial_stride(x.columns()) * 4};
}

inline Cost rotary_table(const Tensor<float>& table) {
  require(table.rank() == 2 && table.columns() % 2 == 0, "rotary_table: a table is [positions, even head dimension]");
  return {.bytes = table.bytes()};
}

template <class T>
Cost rope(const Tensor<T>& x, const Tensor<const float>& table, CumulativeLengths documents) {
  require(x.rank() == 2 && table.rank() == 2 && table.columns() > 0 && table.columns() % 2 == 0 &&
              x.columns() % table.columns() == 0 && (table.rows() > 0 || x.rows() == 0),
          "rope: heads of ", table.rank() == 2 ? table.columns() : 0, " do not divide ",
          x.rank() == 2 ? x.columns() : 0, " columns");
  require_documents(documents, x.rows(), table.rows());
  return {.bytes = 2 * x.bytes() + std::min(x.rows(), table.rows()) * table.columns() * 4};
}

template <class G, class H>
Cost swiglu(const Tensor<G>& gate, const Tensor<G>& up, const Tensor<H>& h) {
  require_same_shape("swiglu", gate, up);
  require_same_shape("swiglu", gate, h);
  return {.bytes = gate.bytes() + up.bytes() + h.bytes()};
}

template <class T>
Cost swiglu_backward(const Tensor<T>& gate, const Tensor<T>& up, const Tensor<T>& dh) {
  return {.bytes = 2 * swiglu(gate, up, dh).bytes};
}

template <class T>
Cost embedding(const Tensor<const T>& table, const Tensor<const std::int32_t>& tokens, const Tensor<T>& out) {
  require(table.rank() == 2 && out.rank() == 2 && out.rows() == tokens.numel() && out.columns() == table.columns(),
          "embedding: the output must be [", tokens.numel(), " tokens, the table's columns]");
  return {.bytes = tokens.bytes() + 2 * out.bytes()};
}

template <class T>
Cost embedding_backward(const Tensor<const std::int32_t>& tokens, const Tensor<const T>& dy,
                        const Tensor<float>& dtable, Write write) {
  require(dtable.rank() == 2 && dy.rank() == 2 && dy.rows() == tokens.numel() && dy.columns() == dtable.columns(),
          "embedding_backward: the gradient must be [", tokens.numel(), " tokens, the table's columns]");
  const std::int64_t touched = std::min(tokens.numel(), dtable.rows()) * dtable.columns() * 4;
  return {.bytes = tokens.bytes() + dy.bytes() + (write == Write::overwrite ? dtable.bytes() : 2 * touched)};
}

/// `passes` over the logits: 2 where they are replaced, 1 where only read.
template <class T>
Cost cross_entropy(const Tensor<T>& logits, const Tensor<const std::int32_t>& targets, const Tensor<double>& loss,
                   int passes) {
  require(logits.rank() == 2 && logits.rows() == targets.numel() && loss.numel() >= 1,
          "cross_entropy: ", targets.numel(), " targets for ", logits.rank() == 2 ? logits.rows() : 0,
          " rows of logits");
  return {.bytes = passes * logits.bytes() + targets.bytes(), .scratch = logits.rows() * 8};
}

/// `passes` over a block of columns: 2 where it is replaced, 1 where only read.
template <class T, class S>
Cost cross_entropy_block(const Tensor<const T>& logits, const Tensor<const std::int32_t>& targets,
                         const Tensor<S>& state, int passes) {
  require(logits.rank() == 2 && logits.rows() == targets.numel() && state.shape() == Shape{logits.rows(), 3},
          "cross_entropy: ", targets.numel(), " targets for ", logits.rank() == 2 ? logits.rows() : 0,
          " rows of logits, whose state must be [rows, 3]");
  return {.bytes = passes * logits.bytes() + targets.bytes() + state.bytes()};
}

inline Cost cross_entropy_sum(const Tensor<const double>& state, const Tensor<double>& loss) {
  require(state.rank() == 2 && state.columns() == 3 && loss.numel() >= 1, "cross_entropy: a state is [rows, 3]");
  return {.bytes = state.bytes()};
}

template <class T>
Cost add(const Tensor<const T>& x, const Tensor<T>& y) {
  require_same_shape("add", x, y);
  return {.bytes = x.bytes() + 2 * y.bytes()};
}

template <class X, class Y>
Cost copy(const Tensor<const X>& x, const Tensor<Y>& y) {
  require_same_shape("copy", x, y);
  return {.bytes = x.bytes() + y.bytes()};
}

template <class T>
Cost fill(const Tensor<T>& y) {
  return {.bytes = y.bytes()};
}

inline Cost sum_of_squares(const Tensor<const float>& x, const Tensor<double>& sum) {
  require(x.contiguous() && sum.numel() >= 1, "sum_of_squares: needs a contiguous tensor and a sum");
  return {.bytes = x.bytes(), .scratch = ceil_divide(x.numel(), sum_chunk) * 8};
}

/// Of decide_step's sums [ranks, 2].
inline std::int64_t ranks_of(const Tensor<const double>& sums) {
  require(sums.rank() == 2 && sums.columns() == 2 && sums.rows() >= 1 && sums.contiguous(),
          "decide_step: sums are a loss and a sum of squares for each rank, [ranks, 2]");
  return sums.rows();
}

inline Cost adamw(const Tensor<float>& main, const Tensor<float>& first_moment, const Tensor<float>& second_moment,
                  const Tensor<const float>& gradient, const Tensor<bf16>& model) {
  const std::int64_t count = main.numel();
  require(first_moment.numel() == count && second_moment.numel() == count && gradient.numel() == count,
          "adamw: ", count, " weights with ", first_moment.numel(), " and ", second_moment.numel(), " moments and ",
          gradient.numel(), " gradients");
  require(model.numel() == 0 || model.numel() == count, "adamw: ", count, " weights with ", model.numel(),
          " model weights");
  require(main.contiguous() && first_moment.contiguous() && second_moment.contiguous() && gradient.contiguous() &&
              model.contiguous(),
          "adamw: shards must be contiguous");
  return {.bytes = 7 * main.bytes() + model.bytes()};
}

template <class T>
void require_attention(const AttentionShape& shape, const Tensor<const T>& q, const Tensor<const T>& k,
                       const Tensor<const T>& v, const Shape& out, const Shape& lse) {
  const Shape queries{shape.tokens(), shape.heads * shape.head_dim};
  const Shape keys{shape.tokens(), shape.kv_heads * shape.head_dim};
  require(q.shape() == queries && out == queries && k.shape() == keys && v.shape() == keys &&
              lse == Shape{shape.sequences * shape.heads, shape.sequence_length},
          "attention: q and out must be [", queries[0], ", ", queries[1], "], k and v [", keys[0], ", ", keys[1], "]");
  require_documents(shape.documents, shape.tokens(), shape.sequence_length);
}

/// Causal: half of each document's square. Forward two products, backward five.
inline std::int64_t attention_flops(const AttentionShape& shape, bool backward) {
  return (backward ? 5 : 2) * checked_multiply(checked_multiply(shape.heads, shape.head_dim), shape.squares());
}

}  // namespace fsdp::device::costs
