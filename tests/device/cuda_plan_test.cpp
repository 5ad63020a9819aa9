// SPDX-License-Identifier: Apache-2.0
/// The dry run of Cuda takes the scratch that Cuda takes, to the byte, and counts the same work.
#include <tessera/fsdp/device/meta.hpp>

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
    enqueue(stream,
            Fill<float>{.y = Tensor<float>(reinterpret_cast<float*>(tensor.data()), {tensor.bytes() / 4}), .value = 0});
  stream.counters = {};
  return tensor;
}

template <class T>
void expect_plans_of() {
  const Shape shape{36, 96};
  expect_equal_costs("matmul", [&](auto d, auto& arena, auto& s) {
    const auto a = make<T>(d, arena, s, shape), c = make<T>(d, arena, s, {36, 36});
    enqueue(s, Matmul<T>{.a = a, .b = transposed(a), .c = c});
  });
  expect_equal_costs("rms_norm_backward", [&](auto d, auto& arena, auto& s) {
    const auto x = make<T>(d, arena, s, shape), w = make<T>(d, arena, s, {96});
    const auto sums = make<float>(d, arena, s, {96}), rstd = make<float>(d, arena, s, {36});
    enqueue(s, RmsNorm<T>{.x = x, .weight = w, .eps = 1, .y = x, .rstd = rstd});
    enqueue(s, RmsNormBackward<T>{.x = x,
                                  .weight = w,
                                  .rstd = rstd,
                                  .dy = x,
                                  .dx = x,
                                  .dx_write = Write::overwrite,
                                  .dw = sums,
                                  .dw_write = Write::accumulate});
    enqueue(s, RmsNormBackward<T>{.x = x,
                                  .weight = w,
                                  .rstd = rstd,
                                  .dy = x,
                                  .dx = x,
                                  .dx_write = Write::overwrite,
                                  .dw = Tensor<float>(nullptr, {96}),
                                  .dw_write = Write::overwrite});
  });
  expect_equal_costs("heads", [&](auto d, auto& arena, auto& s) {
    const auto x = make<T>(d, arena, s, shape), w = make<T>(d, arena, s, {32}), bias = make<T>(d, arena, s, {96});
    const auto sums = make<float>(d, arena, s, {96}), rstd = make<float>(d, arena, s, {108});
    enqueue(s, RmsNorm<T>{.x = x, .weight = w, .eps = 1, .y = x, .rstd = rstd});
    enqueue(s, RmsNormBackward<T>{.x = x, .weight = w, .rstd = rstd, .dy = x, .dx = x, .dw = sums.slice(0, 32)});
    enqueue(s, AddBias<T>{.bias = bias, .y = x});
    enqueue(s, BiasBackward<T>{.dy = x, .dbias = sums});
  });
  const std::vector<std::int64_t> lengths = {0, 5, 18, 36};
  for (const CumulativeLengths documents : {CumulativeLengths(), CumulativeLengths(lengths)}) {
    expect_equal_costs("rope", [&](auto d, auto& arena, auto& s) {
      const auto x = make<T>(d, arena, s, shape);
      const auto table = make<float>(d, arena, s, {18, 16});
      enqueue(s, RotaryTable{.theta = 1e4f, .table = table});
      enqueue(s, Rope<T>{.x = x, .table = table, .rotation = Rotation::forward, .documents = documents});
    });
    expect_equal_costs("attention", [&](auto d, auto& arena, auto& s) {
      const AttentionShape heads{
          .sequences = 2, .sequence_length = 18, .heads = 6, .kv_heads = 3, .head_dim = 16, .documents = documents};
      const auto q = make<T>(d, arena, s, shape), out = make<T>(d, arena, s, shape);
      const auto k = make<T>(d, arena, s, {36, 48});
      const auto lse = make<float>(d, arena, s, {12, 18});
      enqueue(s, Attention<T>{.shape = heads, .q = q, .k = k, .v = k, .out = out, .lse = lse});
      enqueue(
          s,
          AttentionBackward<T>{
              .shape = heads, .q = q, .k = k, .v = k, .out = out, .lse = lse, .dout = out, .dq = q, .dk = k, .dv = k});
    });
  }
  expect_equal_costs("vocabulary", [&](auto d, auto& arena, auto& s) {
    const auto x = make<T>(d, arena, s, shape), rows = make<T>(d, arena, s, shape);
    const auto tokens = make<std::int32_t>(d, arena, s, {36});
    const auto sums = make<float>(d, arena, s, shape);
    const auto loss = make<double>(d, arena, s, {1}), state = make<double>(d, arena, s, {36, 3});
    enqueue(s, Embedding<T>{.table = x, .tokens = tokens, .out = rows});
    enqueue(s, EmbeddingBackward<T>{.tokens = tokens, .dy = x, .dtable = sums, .write = Write::overwrite});
    enqueue(s, CrossEntropyLoss<T>{.logits = x, .targets = tokens, .loss = loss});
    enqueue(s, CrossEntropyFold<T>{.logits = x, .first = 0, .targets = tokens, .state = state});
    enqueue(s, CrossEntropySum{.state = state, .loss = loss});
    enqueue(s, CrossEntropyGradient<T>{.logits = x, .first = 0, .targets = tokens, .scale = 1, .state = state});
    enqueue(s, CrossEntropy<T>{.logits = x, .targets = tokens, .scale = 1, .loss = loss});
  });
  expect_equal_costs("elements", [&](auto d, auto& arena, auto& s) {
    const auto x = make<T>(d, arena, s, shape), y = make<T>(d, arena, s, shape);
    const auto wide = make<float>(d, arena, s, shape);
    enqueue(s, SwiGlu<T>{.gate = x, .up = y, .h = y});
    enqueue(s, SwiGluBackward<T>{.gate = x, .up = y, .dh = x});
    enqueue(s, Add<T>{.x = x, .y = y});
    enqueue(s, Copy<T, float>{.x = x, .y = wide});
    enqueue(s, Fill<T>{.y = x, .value = 1});
  });
}

TEST(CudaPlan, IsWhatCudaTakes) {
  FSDP_NEEDS_DEVICE();
  expect_plans_of<float>();
  expect_plans_of<bf16>();
  expect_plans_of<f16>();
  expect_equal_costs("optimizer", [&](auto d, auto& arena, auto& s) {
    const auto x = make<float>(d, arena, s, {50001});
    const auto sums = make<double>(d, arena, s, {1, 2});
    const auto step = make<StepDecision>(d, arena, s, {1});
    const auto inputs = make<StepInputs>(d, arena, s, {1});
    const auto largest = make<std::int64_t>(d, arena, s, {1}), exact = make<std::int64_t>(d, arena, s, {1, 2});
    enqueue(s, SumOfSquares{.x = x, .sum = sums});
    enqueue(s, DecideStep{.inputs = inputs, .sums = sums, .step = step});
    enqueue(s, LargestMagnitude{.x = x, .largest = largest});
    enqueue(s, FixedPointSquares{.x = x, .largest = largest, .sum = exact});
    enqueue(s, DecideStep{.inputs = inputs, .sums = sums, .largest = largest, .exact = exact, .step = step});
    enqueue(s, AdamWStep<float>{.step = step, .main = x, .first_moment = x, .second_moment = x, .gradient = x});
  });
}

}  // namespace
}  // namespace fsdp::device
