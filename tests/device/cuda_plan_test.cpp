// SPDX-License-Identifier: Apache-2.0
/// The dry run of Cuda takes the scratch that Cuda takes, to the byte, and counts the same work.
#include <fsdp/device/meta.hpp>

#include "cuda_reference.hpp"
#include "trace.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

static_assert(check_device<MetaOf<Cuda>>());

template <class Operation>
void expect_equal_costs(const char* name, const Operation& operation) {
  Ledger ledger;
  const Trace cuda = trace<Cuda>(Cuda::Arena(ledger, std::int64_t{48} << 20), 1, operation);
  const Trace plan = trace<MetaOf<Cuda>>(MetaOf<Cuda>::Arena::unbounded(), 1, operation);
  EXPECT_EQ(cuda, plan) << name;
  EXPECT_GT(cuda.matmul_flops + cuda.attention_flops + cuda.elementwise_bytes, 0) << name;
}

/// A tensor in the arena, zeroed where there is storage.
template <class T>
Tensor<T> make(auto device, auto& arena, auto& stream, const Shape& shape) {
  using D = decltype(device);
  const auto tensor = arena.template allocate<T>(D::Arena::End::low, shape);
  if constexpr (!D::counts_only)
    D::template fill<float>(stream, Tensor<float>(reinterpret_cast<float*>(tensor.data()), {tensor.bytes() / 4}), 0);
  stream.counters = {};
  return tensor;
}

template <class T>
void expect_plans_of() {
  const Shape shape{36, 96};
  expect_equal_costs("matmul", [&](auto d, auto& arena, auto& s) {
    using D = decltype(d);
    const auto a = make<T>(d, arena, s, shape), c = make<T>(d, arena, s, {36, 36});
    D::template matmul<T, T>(s, a, transposed(a), c);
  });
  expect_equal_costs("rms_norm_backward", [&](auto d, auto& arena, auto& s) {
    using D = decltype(d);
    const auto x = make<T>(d, arena, s, shape), w = make<T>(d, arena, s, {96});
    const auto sums = make<float>(d, arena, s, {96}), rstd = make<float>(d, arena, s, {36});
    D::template rms_norm<T>(s, x, w, 1, x, rstd);
    D::template rms_norm_backward<T>(s, x, w, rstd, x, x, Write::overwrite, sums, Write::accumulate);
    D::template rms_norm_backward<T>(s, x, w, rstd, x, x, Write::overwrite, Tensor<float>(nullptr, {96}),
                                     Write::overwrite);
  });
  const std::vector<std::int64_t> lengths = {0, 5, 18, 36};
  for (const CumulativeLengths documents : {CumulativeLengths(), CumulativeLengths(lengths)}) {
    expect_equal_costs("rope", [&](auto d, auto& arena, auto& s) {
      using D = decltype(d);
      const auto x = make<T>(d, arena, s, shape);
      const auto table = make<float>(d, arena, s, {18, 16});
      D::rotary_table(s, 1e4f, table);
      D::template rope<T>(s, x, table, Rotation::forward, documents);
    });
    expect_equal_costs("attention", [&](auto d, auto& arena, auto& s) {
      using D = decltype(d);
      const AttentionShape heads{
          .sequences = 2, .sequence_length = 18, .heads = 6, .kv_heads = 3, .head_dim = 16, .documents = documents};
      const auto q = make<T>(d, arena, s, shape), out = make<T>(d, arena, s, shape);
      const auto k = make<T>(d, arena, s, {36, 48});
      const auto lse = make<float>(d, arena, s, {12, 18});
      D::template attention<T>(s, heads, q, k, k, out, lse);
      D::template attention_backward<T>(s, heads, q, k, k, out, lse, out, q, k, k);
    });
  }
  expect_equal_costs("vocabulary", [&](auto d, auto& arena, auto& s) {
    using D = decltype(d);
    const auto x = make<T>(d, arena, s, shape);
    const auto tokens = make<std::int32_t>(d, arena, s, {36});
    const auto sums = make<float>(d, arena, s, shape);
    const auto loss = make<double>(d, arena, s, {1}), state = make<double>(d, arena, s, {36, 3});
    D::template embedding<T>(s, x, tokens, x);
    D::template embedding_backward<T>(s, tokens, x, sums, Write::overwrite);
    D::template cross_entropy_loss<T>(s, x, tokens, loss);
    D::template cross_entropy_fold<T>(s, x, 0, tokens, state);
    D::cross_entropy_sum(s, state, loss);
    D::template cross_entropy_gradient<T>(s, x, 0, tokens, 1, state);
    D::template cross_entropy<T>(s, x, tokens, 1, loss);
  });
  expect_equal_costs("elements", [&](auto d, auto& arena, auto& s) {
    using D = decltype(d);
    const auto x = make<T>(d, arena, s, shape), y = make<T>(d, arena, s, shape);
    const auto wide = make<float>(d, arena, s, shape);
    D::template swiglu<T>(s, x, y, y);
    D::template swiglu_backward<T>(s, x, y, x);
    D::template add<T>(s, x, y);
    D::template copy<T, float>(s, x, wide);
    D::template fill<T>(s, x, 1);
  });
}

TEST(CudaPlan, IsWhatCudaTakes) {
  FSDP_NEEDS_DEVICE();
  expect_plans_of<float>();
  expect_plans_of<bf16>();
  expect_plans_of<f16>();
  expect_equal_costs("optimizer", [&](auto d, auto& arena, auto& s) {
    using D = decltype(d);
    const auto x = make<float>(d, arena, s, {50001});
    const auto sum = make<double>(d, arena, s, {1});
    D::sum_of_squares(s, x, sum);
    D::adamw(s, {}, x, x, x, x, Tensor<bf16>());
  });
}

}  // namespace
}  // namespace fsdp::device
