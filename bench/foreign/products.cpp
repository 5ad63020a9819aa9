// SPDX-License-Identifier: Apache-2.0
#include "products.hpp"

#include <algorithm>
#include <memory>

#include <Eigen/Dense>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/views.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#if defined(TESSERA_BENCH_OPENBLAS)
extern "C" {
void openblas_set_num_threads(int);
void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc);
}
#endif

namespace fsdp::bench::foreign {
namespace {

using device::Cpu;
using device::Operand;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void by_eigen(const Operand<float>& a, const Operand<float>& b, const Tensor<float>& c) {
  const auto left = as_eigen<Eigen::Map<const Matrix>>(a.tensor), right = as_eigen<Eigen::Map<const Matrix>>(b.tensor);
  auto result = as_eigen<Eigen::Map<Matrix>>(c);
  if (a.transposed)
    result.noalias() = left.transpose() * right;
  else if (b.transposed)
    result.noalias() = left * right.transpose();
  else
    result.noalias() = left * right;
}

#if defined(TESSERA_BENCH_OPENBLAS)
void by_openblas(const Operand<float>& a, const Operand<float>& b, const Tensor<float>& c) {
  constexpr int row_major = 101, as_is = 111, transposed = 112;
  const int inner = static_cast<int>(a.tensor.extent(a.transposed ? 0 : 1));
  cblas_sgemm(row_major, a.transposed ? transposed : as_is, b.transposed ? transposed : as_is,
              static_cast<int>(c.extent(0)), static_cast<int>(c.extent(1)), inner, 1, a.tensor.data(),
              static_cast<int>(a.tensor.extent(1)), b.tensor.data(), static_cast<int>(b.tensor.extent(1)), 0, c.data(),
              static_cast<int>(c.extent(1)));
}
#endif

device::Matmul<float> matmul(const Operand<float>& a, const Operand<float>& b, const Tensor<float>& c) {
  return {.a = a, .b = b, .c = c};
}

/// A matrix product by oneDNN through Matmul, with its scratch.
class ByMatmul {
 public:
  ByMatmul(std::int64_t rows, std::int64_t in, std::int64_t out)
      : arena_(ledger_, scratch_of(rows, in, out)), stream_(arena_, 1) {}
  void run(const device::Matmul<float>& product) { device::enqueue(stream_, product); }

 private:
  static std::int64_t scratch_of(std::int64_t rows, std::int64_t in, std::int64_t out) {
    const Cpu::Planner planner(1);
    const Tensor<float> x(nullptr, {rows, in}), w(nullptr, {out, in}), y(nullptr, {rows, out});
    return std::max({scratch(planner, matmul({x}, device::transposed(w), y)), scratch(planner, matmul({y}, {w}, x)),
                     scratch(planner, matmul(device::transposed(y), {x}, w))}) +
           device::alignment;
  }
  device::Ledger ledger_;
  Cpu::Arena arena_;
  Cpu::Stream stream_;
};

}  // namespace

Product product_by(const std::string& name, std::int64_t rows, std::int64_t in, std::int64_t out) {
  if (name == "eigen") return by_eigen;
  if (name == "tessera")
    return [own = std::make_shared<ByMatmul>(rows, in, out)](const auto& a, const auto& b, const auto& c) {
      own->run(matmul(a, b, c));
    };
  require<InputError>(name == "openblas", "--matmul ", name, ": known are eigen, openblas and tessera");
#if defined(TESSERA_BENCH_OPENBLAS)
  openblas_set_num_threads(1);  // for each calling thread
  return by_openblas;
#else
  throw InputError("--matmul openblas: this build has no OpenBLAS (Debian: libopenblas-dev); take eigen or tessera");
#endif
}

}  // namespace fsdp::bench::foreign
