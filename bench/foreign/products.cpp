// SPDX-License-Identifier: Apache-2.0

#include "products.hpp"

#if defined(TESSERA_BENCH_MATMUL)

#include <algorithm>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/operations.hpp>

namespace fsdp::bench {

using device::Cpu;
using Product = device::Matmul<float>;

namespace {
Product forward_of(Tensor<const float> x, Tensor<const float> w, Tensor<float> y) {
  return {.a = {x}, .b = device::transposed(w), .c = y};
}
Product input_gradient_of(Tensor<const float> dy, Tensor<const float> w, Tensor<float> dx) {
  return {.a = {dy}, .b = {w}, .c = dx};
}
Product weight_gradient_of(Tensor<const float> dy, Tensor<const float> x, Tensor<float> dw) {
  return {.a = device::transposed(dy), .b = {x}, .c = dw};
}

std::int64_t scratch_of(std::int64_t rows, std::int64_t in, std::int64_t out) {
  const Cpu::Planner planner(1);
  const Tensor<float> x(nullptr, {rows, in}), w(nullptr, {out, in}), y(nullptr, {rows, out});
  return std::max({scratch(planner, forward_of(x, w, y)), scratch(planner, input_gradient_of(y, w, x)),
                   scratch(planner, weight_gradient_of(y, x, w))}) +
         device::alignment;
}
}  // namespace

struct Products::Own {
  device::Ledger ledger;
  Cpu::Arena arena;
  Cpu::Stream stream;
  explicit Own(std::int64_t scratch) : arena(ledger, scratch), stream(arena, 1) {}
};

std::string_view Products::by() { return "tessera"; }

Products::Products(std::int64_t rows, std::int64_t in, std::int64_t out)
    : own_(std::make_unique<Own>(scratch_of(rows, in, out))) {}
Products::~Products() = default;

void Products::forward(Tensor<const float> x, Tensor<const float> w, Tensor<float> y) {
  device::enqueue(own_->stream, forward_of(x, w, y));
}
void Products::input_gradient(Tensor<const float> dy, Tensor<const float> w, Tensor<float> dx) {
  device::enqueue(own_->stream, input_gradient_of(dy, w, dx));
}
void Products::weight_gradient(Tensor<const float> dy, Tensor<const float> x, Tensor<float> dw) {
  device::enqueue(own_->stream, weight_gradient_of(dy, x, dw));
}

}  // namespace fsdp::bench

#else

#include <Eigen/Dense>

#include <tessera/fsdp/core/views.hpp>

#if defined(EIGEN_USE_BLAS)
extern "C" void openblas_set_num_threads(int);
#endif

namespace fsdp::bench {

struct Products::Own {};

namespace {
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
auto matrix(Tensor<float> x) { return as_eigen<Eigen::Map<Matrix>>(x); }
auto matrix(Tensor<const float> x) { return as_eigen<Eigen::Map<const Matrix>>(x); }
}  // namespace

#if defined(EIGEN_USE_BLAS)
std::string_view Products::by() { return "openblas"; }
Products::Products(std::int64_t, std::int64_t, std::int64_t) { openblas_set_num_threads(1); }  // of each caller
#else
std::string_view Products::by() { return "eigen"; }
Products::Products(std::int64_t, std::int64_t, std::int64_t) {}
#endif
Products::~Products() = default;

void Products::forward(Tensor<const float> x, Tensor<const float> w, Tensor<float> y) {
  matrix(y).noalias() = matrix(x) * matrix(w).transpose();
}
void Products::input_gradient(Tensor<const float> dy, Tensor<const float> w, Tensor<float> dx) {
  matrix(dx).noalias() = matrix(dy) * matrix(w);
}
void Products::weight_gradient(Tensor<const float> dy, Tensor<const float> x, Tensor<float> dw) {
  matrix(dw).noalias() = matrix(dy).transpose() * matrix(x);
}

}  // namespace fsdp::bench

#endif
