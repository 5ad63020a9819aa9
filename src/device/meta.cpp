// SPDX-License-Identifier: Apache-2.0
/// @file
/// Meta's operations: costs without work.
#include <omp.h>

#include <fsdp/device/meta.hpp>

#include <atomic>

#include "costs.hpp"
#include "cuda/scratch.hpp"

namespace fsdp::device {

/// Scratch of the CPU: asked of a stream that never computes.
template <>
struct MetaOf<Cpu>::Stream::Planner {
  explicit Planner(int threads) : stream(arena, threads) {}

  std::int64_t matmul(const MatmulRecord& problem, std::int64_t lda, std::int64_t ldb, std::int64_t ldc) {
    return Cpu::matmul_scratch(stream, problem, lda, ldb, ldc);
  }
  std::int64_t norm_backward(const costs::Cost& cost, std::int64_t, std::int64_t, bool) const { return cost.scratch; }
  std::int64_t rope(std::int64_t) const { return 0; }
  std::int64_t attention(const AttentionShape& shape, DType dtype, bool backward) {
    return Cpu::attention_scratch(stream, shape, dtype, backward);
  }

  Cpu::Arena arena;  ///< empty: descriptors take nothing from it
  Cpu::Stream stream;
};

/// Scratch of a GPU: functions of the problem.
template <>
struct MetaOf<Cuda>::Stream::Planner {
  explicit Planner(int) {}

  std::int64_t matmul(const MatmulRecord& problem, std::int64_t, std::int64_t, std::int64_t) const {
    return cuda::matmul_scratch(problem);
  }
  std::int64_t norm_backward(const costs::Cost&, std::int64_t rows, std::int64_t columns, bool wants_dw) const {
    return cuda::norm_scratch(rows, columns, wants_dw);
  }
  std::int64_t rope(std::int64_t tokens) const { return cuda::documents_scratch(tokens); }
  std::int64_t attention(const AttentionShape& shape, DType dtype, bool backward) const {
    return cuda::attention_scratch(shape, dtype, backward);
  }
};

namespace {

/// Scratch is held for a moment, so that the arena's peak is the target's.
template <class Stream>
void take(Stream& stream, std::int64_t scratch) {
  typename std::remove_reference_t<decltype(stream.arena())>::Frame frame(stream.arena());
  frame.template allocate<std::uint8_t>({scratch}, MemoryKind::scratch);
}

template <class Stream>
void charge(Stream& stream, const costs::Cost& cost) {
  stream.counters.elementwise_bytes += cost.bytes;
  take(stream, cost.scratch);
}

}  // namespace

template <class Target>
std::byte* MetaOf<Target>::allocate(std::int64_t bytes) {
  static std::atomic<std::uintptr_t> next{std::uintptr_t{1} << 60};
  return reinterpret_cast<std::byte*>(next.fetch_add(static_cast<std::uintptr_t>(round_up(bytes, alignment))));
}

template <class Target>
MetaOf<Target>::Stream::Stream(Arena& arena, int threads) : arena_(&arena), threads_(threads) {
  const int before = omp_get_max_threads();  // a CPU stream sets the team size; planning must not
  planner_ = std::make_unique<Planner>(threads);
  omp_set_num_threads(before);
}

template <class Target>
MetaOf<Target>::Stream::Stream(Stream&&) noexcept = default;
template <class Target>
MetaOf<Target>::Stream::~Stream() = default;

template <class Target>
template <class A, class C>
void MetaOf<Target>::matmul(Stream& stream, Operand<A> a, Operand<A> b, Tensor<C> c, Write write) {
  const MatmulRecord problem = costs::matmul(a, b, c, write);
  costs::count(stream.counters, problem);
  take(stream, stream.planner().matmul(problem, a.tensor.row_stride(), b.tensor.row_stride(), c.row_stride()));
}

template <class Target>
template <class T>
void MetaOf<Target>::rms_norm(Stream& stream, Tensor<const T> x, Tensor<const T> w, float, Tensor<T> y,
                              Tensor<float> rstd) {
  charge(stream, costs::rms_norm(x, w, y, rstd));
}

template <class Target>
template <class T>
void MetaOf<Target>::rms_norm_backward(Stream& stream, Tensor<const T> x, Tensor<const T> w, Tensor<const float> rstd,
                                       Tensor<const T> dy, Tensor<T> dx, Write dx_write, Tensor<float> dw,
                                       Write dw_write) {
  costs::Cost cost = costs::rms_norm_backward(x, w, rstd, dy, dx, dx_write, dw, dw_write, stream.threads());
  cost.scratch = stream.planner().norm_backward(cost, x.rows(), x.columns(), dw.data() != nullptr);
  charge(stream, cost);
}

template <class Target>
void MetaOf<Target>::rotary_table(Stream& stream, float, Tensor<float> table) {
  charge(stream, costs::rotary_table(table));
}

template <class Target>
template <class T>
void MetaOf<Target>::rope(Stream& stream, Tensor<T> x, Tensor<const float> table, Rotation,
                          CumulativeLengths documents) {
  charge(stream, costs::rope(x, table, documents));
  take(stream, stream.planner().rope(x.rows()));
}

template <class Target>
template <class T>
void MetaOf<Target>::attention(Stream& stream, const AttentionShape& shape, Tensor<const T> q, Tensor<const T> k,
                               Tensor<const T> v, Tensor<T> out, Tensor<float> lse) {
  costs::require_attention(shape, q, k, v, out.shape(), lse.shape());
  stream.counters.attention_flops += costs::attention_flops(shape, false);
  take(stream, stream.planner().attention(shape, dtype_of<T>(), false));
}

template <class Target>
template <class T>
void MetaOf<Target>::attention_backward(Stream& stream, const AttentionShape& shape, Tensor<const T> q,
                                        Tensor<const T> k, Tensor<const T> v, Tensor<const T> out,
                                        Tensor<const float> lse, Tensor<const T> dout, Tensor<T> dq, Tensor<T> dk,
                                        Tensor<T> dv) {
  costs::require_attention(shape, q, k, v, out.shape(), lse.shape());
  costs::require_attention<T>(shape, dq, dk, dv, dout.shape(), lse.shape());
  stream.counters.attention_flops += costs::attention_flops(shape, true);
  take(stream, stream.planner().attention(shape, dtype_of<T>(), true));
}

template <class Target>
template <class T>
void MetaOf<Target>::swiglu(Stream& stream, Tensor<const T> gate, Tensor<const T> up, Tensor<T> h) {
  charge(stream, costs::swiglu(gate, up, h));
}

template <class Target>
template <class T>
void MetaOf<Target>::swiglu_backward(Stream& stream, Tensor<T> gate, Tensor<T> up, Tensor<T> dh) {
  charge(stream, costs::swiglu_backward(gate, up, dh));
}

template <class Target>
template <class T>
void MetaOf<Target>::embedding(Stream& stream, Tensor<const T> table, Tensor<const std::int32_t> tokens,
                               Tensor<T> out) {
  charge(stream, costs::embedding(table, tokens, out));
}

template <class Target>
template <class T>
void MetaOf<Target>::embedding_backward(Stream& stream, Tensor<const std::int32_t> tokens, Tensor<const T> dy,
                                        Tensor<float> dtable, Write write) {
  charge(stream, costs::embedding_backward(tokens, dy, dtable, write));
}

template <class Target>
template <class T>
void MetaOf<Target>::cross_entropy(Stream& stream, Tensor<T> logits, Tensor<const std::int32_t> targets, float,
                                   Tensor<double> loss) {
  charge(stream, costs::cross_entropy(logits, targets, loss, 2));
}

template <class Target>
template <class T>
void MetaOf<Target>::cross_entropy_loss(Stream& stream, Tensor<const T> logits, Tensor<const std::int32_t> targets,
                                        Tensor<double> loss) {
  charge(stream, costs::cross_entropy(logits, targets, loss, 1));
}

template <class Target>
template <class T>
void MetaOf<Target>::cross_entropy_fold(Stream& stream, Tensor<const T> logits, std::int64_t,
                                        Tensor<const std::int32_t> targets, Tensor<double> state) {
  charge(stream, costs::cross_entropy_block(logits, targets, state, 1));
}

template <class Target>
void MetaOf<Target>::cross_entropy_sum(Stream& stream, Tensor<const double> state, Tensor<double> loss) {
  charge(stream, costs::cross_entropy_sum(state, loss));
}

template <class Target>
template <class T>
void MetaOf<Target>::cross_entropy_gradient(Stream& stream, Tensor<T> logits, std::int64_t,
                                            Tensor<const std::int32_t> targets, float, Tensor<const double> state) {
  charge(stream, costs::cross_entropy_block(Tensor<const T>(logits), targets, state, 2));
}

template <class Target>
template <class T>
void MetaOf<Target>::add(Stream& stream, Tensor<const T> x, Tensor<T> y) {
  charge(stream, costs::add(x, y));
}

template <class Target>
template <class X, class Y>
void MetaOf<Target>::copy(Stream& stream, Tensor<const X> x, Tensor<Y> y) {
  charge(stream, costs::copy(x, y));
}

template <class Target>
template <class T>
void MetaOf<Target>::fill(Stream& stream, Tensor<T> y, float) {
  charge(stream, costs::fill(y));
}

template <class Target>
void MetaOf<Target>::sum_of_squares(Stream& stream, Tensor<const float> x, Tensor<double> sum) {
  charge(stream, costs::sum_of_squares(x, sum));
}

template <class Target>
void MetaOf<Target>::adamw(Stream& stream, const AdamWStep&, Tensor<float> main, Tensor<float> first_moment,
                           Tensor<float> second_moment, Tensor<const float> gradient, Tensor<bf16> model) {
  charge(stream, costs::adamw(main, first_moment, second_moment, gradient, model));
}

#define FSDP_META_OPERATIONS(Meta, T)                                                                                 \
  template void Meta::matmul<T, T>(Stream&, Operand<T>, Operand<T>, Tensor<T>, Write);                                \
  template void Meta::rms_norm<T>(Stream&, Tensor<const T>, Tensor<const T>, float, Tensor<T>, Tensor<float>);        \
  template void Meta::rms_norm_backward<T>(Stream&, Tensor<const T>, Tensor<const T>, Tensor<const float>,            \
                                           Tensor<const T>, Tensor<T>, Write, Tensor<float>, Write);                  \
  template void Meta::rope<T>(Stream&, Tensor<T>, Tensor<const float>, Rotation, CumulativeLengths);                  \
  template void Meta::attention<T>(Stream&, const AttentionShape&, Tensor<const T>, Tensor<const T>, Tensor<const T>, \
                                   Tensor<T>, Tensor<float>);                                                         \
  template void Meta::attention_backward<T>(Stream&, const AttentionShape&, Tensor<const T>, Tensor<const T>,         \
                                            Tensor<const T>, Tensor<const T>, Tensor<const float>, Tensor<const T>,   \
                                            Tensor<T>, Tensor<T>, Tensor<T>);                                         \
  template void Meta::swiglu<T>(Stream&, Tensor<const T>, Tensor<const T>, Tensor<T>);                                \
  template void Meta::swiglu_backward<T>(Stream&, Tensor<T>, Tensor<T>, Tensor<T>);                                   \
  template void Meta::embedding<T>(Stream&, Tensor<const T>, Tensor<const std::int32_t>, Tensor<T>);                  \
  template void Meta::embedding_backward<T>(Stream&, Tensor<const std::int32_t>, Tensor<const T>, Tensor<float>,      \
                                            Write);                                                                   \
  template void Meta::cross_entropy<T>(Stream&, Tensor<T>, Tensor<const std::int32_t>, float, Tensor<double>);        \
  template void Meta::cross_entropy_loss<T>(Stream&, Tensor<const T>, Tensor<const std::int32_t>, Tensor<double>);    \
  template void Meta::cross_entropy_fold<T>(Stream&, Tensor<const T>, std::int64_t, Tensor<const std::int32_t>,       \
                                            Tensor<double>);                                                          \
  template void Meta::cross_entropy_gradient<T>(Stream&, Tensor<T>, std::int64_t, Tensor<const std::int32_t>, float,  \
                                                Tensor<const double>);                                                \
  template void Meta::add<T>(Stream&, Tensor<const T>, Tensor<T>);                                                    \
  template void Meta::copy<T, float>(Stream&, Tensor<const T>, Tensor<float>);                                        \
  template void Meta::copy<T, bf16>(Stream&, Tensor<const T>, Tensor<bf16>);                                          \
  template void Meta::fill<T>(Stream&, Tensor<T>, float);
#define FSDP_META(Target)                                                                                         \
  template struct MetaOf<Target>;                                                                                 \
  FSDP_META_OPERATIONS(MetaOf<Target>, float)                                                                     \
  FSDP_META_OPERATIONS(MetaOf<Target>, bf16)                                                                      \
  template void MetaOf<Target>::matmul<bf16, float>(Stream&, Operand<bf16>, Operand<bf16>, Tensor<float>, Write); \
  template void MetaOf<Target>::fill<double>(Stream&, Tensor<double>, float);
FSDP_META(Cpu)
FSDP_META(Cuda)
FSDP_META_OPERATIONS(MetaOf<Cuda>, f16)
template void MetaOf<Cuda>::matmul<f16, float>(Stream&, Operand<f16>, Operand<f16>, Tensor<float>, Write);
template void MetaOf<Cuda>::copy<f16, f16>(Stream&, Tensor<const f16>, Tensor<f16>);
template void MetaOf<Cuda>::copy<float, f16>(Stream&, Tensor<const float>, Tensor<f16>);

}  // namespace fsdp::device
