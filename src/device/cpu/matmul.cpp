// SPDX-License-Identifier: Apache-2.0
/// @file
/// Matrix products, by oneDNN, with scratch from the arena.
#include <algorithm>

#include <fsdp/device/cpu.hpp>

#include "../costs.hpp"
#include "onednn.hpp"

namespace fsdp::device {
namespace {

cpu::MatmulKey key_of(const MatmulRecord& problem, std::int64_t lda, std::int64_t ldb, std::int64_t ldc) {
  // The stride of a matrix with one row means nothing; oneDNN wants it sound.
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
          .lda = leading(ta ? problem.k : problem.m, ta ? problem.m : problem.k, lda),
          .ldb = leading(tb ? problem.n : problem.k, tb ? problem.k : problem.n, ldb),
          .ldc = leading(problem.m, problem.n, ldc),
          .a_transposed = ta,
          .b_transposed = tb,
          .accumulate = problem.accumulate};
}

bool is_empty(const MatmulRecord& problem) { return problem.m == 0 || problem.n == 0 || problem.k == 0; }

}  // namespace

template <class A, class C>
void Cpu::matmul(Stream& stream, Operand<A> a, Operand<A> b, Tensor<C> c, Write write) {
  const MatmulRecord problem = costs::matmul(a, b, c, write);
  costs::count(stream.counters, problem);
  if (is_empty(problem)) {
    if (write == Write::overwrite)  // a sum of no products
      for (std::int64_t row = 0; row < c.rows(); ++row) std::fill_n(c.row(row), c.columns(), C(0.0f));
    return;
  }
  const cpu::Matmul& primitive =
      stream.cache().matmul(key_of(problem, a.tensor.row_stride(), b.tensor.row_stride(), c.row_stride()));
  Arena::Frame frame(stream.arena());
  const Tensor<std::uint8_t> scratch = frame.allocate<std::uint8_t>({primitive.scratch_bytes}, MemoryKind::scratch);
  cpu::run(primitive, a.tensor.data(), b.tensor.data(), c.data(), scratch.data());
}

std::int64_t Cpu::matmul_scratch(Stream& stream, const MatmulRecord& problem, std::int64_t lda, std::int64_t ldb,
                                 std::int64_t ldc) {
  return is_empty(problem) ? 0 : stream.cache().matmul_scratch(key_of(problem, lda, ldb, ldc));
}

template void Cpu::matmul<float, float>(Stream&, Operand<float>, Operand<float>, Tensor<float>, Write);
template void Cpu::matmul<bf16, bf16>(Stream&, Operand<bf16>, Operand<bf16>, Tensor<bf16>, Write);
template void Cpu::matmul<bf16, float>(Stream&, Operand<bf16>, Operand<bf16>, Tensor<float>, Write);

}  // namespace fsdp::device
