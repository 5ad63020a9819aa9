// SPDX-License-Identifier: Apache-2.0
/// @file
/// Linear layers and the gate of SwiGLU. oneDNN computes matrix products, with scratch from the arena; products of few
/// rows, which are bound by memory bandwidth, use our own kernel.
#include <algorithm>
#include <array>

#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>

#include "../../cpu/threads.hpp"
#include "kernels/tables.hpp"
#include "onednn.hpp"
#include "row_sums.hpp"

namespace fsdp::device {
namespace {

template <class A, class C>
cpu::MatmulKey key_of(const Matmul<A, C>& op) {
  const MatmulRecord problem = op.record();
  // The stride of a matrix with one row is meaningless, but oneDNN requires a valid one.
  const auto leading = [](std::int64_t rows, std::int64_t columns, std::int64_t stride) {
    return rows == 1 ? columns : stride;
  };
  const bool ta = problem.a_transposed;
  const bool tb = problem.b_transposed;
  return {.a = problem.operands,
          .c = problem.result,
          .m = problem.m,
          .n = problem.n,
          .k = problem.k,
          .lda = leading(ta ? problem.k : problem.m, ta ? problem.m : problem.k, op.a.tensor.row_stride()),
          .ldb = leading(tb ? problem.n : problem.k, tb ? problem.k : problem.n, op.b.tensor.row_stride()),
          .ldc = leading(problem.m, problem.n, op.c.row_stride()),
          .a_transposed = ta,
          .b_transposed = tb,
          .accumulate = problem.accumulate};
}

template <class A, class C>
bool is_empty(const Matmul<A, C>& op) {
  return op.c.rows() == 0 || op.c.columns() == 0 || op.a.columns() == 0;
}

/// Returns whether this is a product of few tokens with the rows of a weight, as in a decoding step.
template <class A, class C>
bool has_few_rows(const Matmul<A, C>& op) {
  constexpr std::int64_t most = 4;
  return op.b.transposed && !op.a.transposed && op.c.rows() <= most;
}

/// Multiplies a few rows of b at a time, which stay in the cache for every row of a.
template <class A, class C>
void multiply_few_rows(Cpu::Stream& stream, const Matmul<A, C>& op) {
  constexpr std::int64_t most = 16;
  const auto& kernel = cpu::kernels<cpu::RowProductKernels>().of<A>();
  const Tensor<const A>&a = op.a.tensor, &b = op.b.tensor;
  const cpu::Division rows{.count = b.rows(), .step = most, .bytes = b.bytes()};
  cpu::for_parts(stream, rows, [&](std::int64_t first, std::int64_t last, int) {
    std::array<float, most> sums;
    for (std::int64_t begin = first; begin < last; begin += most) {
      const std::int64_t count = std::min(most, last - begin);
      for (std::int64_t row = 0; row < a.rows(); ++row) {
        kernel.products(a.row(row), b.row(begin), b.row_stride(), b.columns(), sums.data(), count);
        C* const c = op.c.row(row) + begin;
        for (std::int64_t i = 0; i < count; ++i) {
          const float before = op.write == Write::accumulate ? static_cast<float>(c[i]) : 0.0f;
          c[i] = C(before + sums[static_cast<std::size_t>(i)]);
        }
      }
    }
  });
}

}  // namespace

template <ComputedBy<Cpu> A, ComputedBy<Cpu> C>
std::int64_t scratch(const Cpu::Planner& planner, const Matmul<A, C>& op) {
  return is_empty(op) || has_few_rows(op) ? 0 : cpu::cache_of(planner).matmul_scratch(key_of(op));
}

template <ComputedBy<Cpu> A, ComputedBy<Cpu> C>
void run(Cpu::Stream& stream, const Matmul<A, C>& op, Scratch memory) {
  if (is_empty(op)) {
    if (op.write == Write::overwrite)  // an empty sum is 0
      for (std::int64_t row = 0; row < op.c.rows(); ++row) std::fill_n(op.c.row(row), op.c.columns(), C(0.0f));
    return;
  }
  if (has_few_rows(op)) return multiply_few_rows(stream, op);
  const cpu::Matmul& primitive = cpu::cache_of(stream).matmul(key_of(op));
  cpu::run(primitive, op.a.tensor.data(), op.b.tensor.data(), op.c.data(), memory.data);
}

template std::int64_t scratch(const Cpu::Planner&, const Matmul<float, float>&);
template std::int64_t scratch(const Cpu::Planner&, const Matmul<bf16, bf16>&);
template std::int64_t scratch(const Cpu::Planner&, const Matmul<bf16, float>&);
template void run(Cpu::Stream&, const Matmul<float, float>&, Scratch);
template void run(Cpu::Stream&, const Matmul<bf16, bf16>&, Scratch);
template void run(Cpu::Stream&, const Matmul<bf16, float>&, Scratch);

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const AddBias<T>& op) {
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::Division rows{.count = op.y.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) kernel.add(op.bias.data(), op.y.row(row), op.y.columns());
  });
}

template <ComputedBy<Cpu> T>
std::int64_t scratch(const Cpu::Planner& planner, const BiasBackward<T>& op) {
  return cpu::RowSums::scratch(planner.threads(), op.dbias.numel());
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const BiasBackward<T>& op, Scratch memory) {
  const auto& kernel = cpu::kernels<cpu::ElementwiseKernels>().of<T>();
  const cpu::RowSums sums(stream.threads(), op.dbias, op.write, memory);
  const cpu::Division rows{.count = op.dy.rows(), .step = 1, .bytes = op.cost().bytes};
  cpu::for_parts(stream, rows, [&](std::int64_t begin, std::int64_t end, int thread) {
    sums.add(begin, end, thread, [&](std::int64_t row, std::int64_t count, float* chunk) {
      for (std::int64_t i = row; i < row + count; ++i) kernel.add_to_float(op.dy.row(i), chunk, op.dy.columns());
    });
  });
  sums.finish();
}

FSDP_RUN_INSTANCES(Cpu, AddBias)
FSDP_RUN_INSTANCES_IN_SCRATCH(Cpu, BiasBackward)

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const SwiGlu<T>& op) {
  const auto& kernel = cpu::kernels<cpu::SwiGluKernels>().of<T>();
  cpu::for_elements(stream, op.h.shape(), op.gate.contiguous() && op.up.contiguous() && op.h.contiguous(),
                    op.cost().bytes, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.forward(op.gate.row(row) + begin, op.up.row(row) + begin, op.h.row(row) + begin,
                                     end - begin);
                    });
}

template <ComputedBy<Cpu> T>
void run(Cpu::Stream& stream, const SwiGluBackward<T>& op) {
  const auto& kernel = cpu::kernels<cpu::SwiGluKernels>().of<T>();
  cpu::for_elements(stream, op.dh.shape(), op.gate.contiguous() && op.up.contiguous() && op.dh.contiguous(),
                    op.cost().bytes, [&](std::int64_t row, std::int64_t begin, std::int64_t end) {
                      kernel.backward(op.gate.row(row) + begin, op.up.row(row) + begin, op.dh.row(row) + begin,
                                      end - begin);
                    });
}

FSDP_RUN_INSTANCES(Cpu, SwiGlu)
FSDP_RUN_INSTANCES(Cpu, SwiGluBackward)

FSDP_ENQUEUE_MATMULS(template, Cpu::Stream)
FSDP_ENQUEUE_MATMULS(template, Meta::Stream)

}  // namespace fsdp::device
