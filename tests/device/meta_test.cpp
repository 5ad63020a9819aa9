// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/meta.hpp>

#include <omp.h>

#include "reference.hpp"
#include "trace.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Makes tensors in an arena, zeroed where there is storage.
template <class Device>
struct Maker {
  typename Device::Arena& arena;

  template <class T>
  Tensor<T> make(const Shape& shape) const {
    const Tensor<T> tensor = arena.template allocate<T>(Device::Arena::End::low, shape);
    if constexpr (std::is_same_v<Device, Cpu>) std::fill_n(tensor.data(), tensor.numel(), T{});
    return tensor;
  }
};

template <class Operation>
void expect_equal_costs(const char* name, const Operation& operation) {
  for (const int threads : team_sizes()) {
    Ledger ledger;
    const Trace cpu = trace<Cpu>(Cpu::Arena(ledger, std::int64_t{4} << 20), threads, operation);
    const Trace meta = trace<Meta>(Meta::Arena::unbounded(), threads, operation);
    EXPECT_EQ(cpu, meta) << name << " with " << threads << " threads";
    EXPECT_GT(cpu.matmul_flops + cpu.attention_flops + cpu.elementwise_bytes, 0) << name;
  }
}

template <class T>
class MetaCosts : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(MetaCosts, Types);

TYPED_TEST(MetaCosts, OfMatmulsAreTheCpus) {
  using T = TypeParam;
  for (const std::int64_t m : {1, 15, 300})
    for (int flags = 0; flags < 8; ++flags)
      expect_equal_costs("matmul", [&](auto d, auto& arena, auto& stream) {
        using D = decltype(d);
        const Maker<D> maker{arena};
        const bool ta = flags & 1, tb = flags & 2;
        const Tensor<T> a = maker.template make<T>(ta ? Shape{64, m} : Shape{m, 64});
        const Tensor<T> b = maker.template make<T>(tb ? Shape{48, 64} : Shape{64, 48});
        const Tensor<T> c = maker.template make<T>({m, 60});
        const Tensor<float> sums = maker.template make<float>({m, 48});
        const Write write = flags & 4 ? Write::accumulate : Write::overwrite;
        enqueue(stream, Matmul<T>{.a = {a, ta}, .b = {b, tb}, .c = c.slice_columns(2, 50), .write = write});
        enqueue(stream, Matmul<T, float>{.a = {a, ta}, .b = {b, tb}, .c = sums, .write = write});
      });
}

TYPED_TEST(MetaCosts, OfElementwiseOperationsAreTheCpus) {
  using T = TypeParam;
  const Shape shape{37, 96};
  const auto check = [&](const char* name, const auto& operation) {
    expect_equal_costs(name, [&](auto d, auto& arena, auto& stream) {
      using D = decltype(d);
      const Maker<D> maker{arena};
      operation(stream, maker.template make<T>(shape), maker.template make<T>(shape), maker.template make<T>(shape),
                maker.template make<T>({96}), maker.template make<float>(shape), maker.template make<float>({96}),
                maker.template make<std::int32_t>({37}), maker.template make<double>({1}));
    });
  };
  // x, y, z [37, 96]; w [96]; wide [37, 96] and sums [96] of float; tokens [37]; total [1].
  check("rms_norm", [](auto& s, auto x, auto y, auto, auto w, auto, auto sums, auto, auto) {
    enqueue(s, RmsNorm<T>{.x = x, .weight = w, .eps = 1, .y = y, .rstd = sums.slice(0, 37)});
  });
  for (const Write write : {Write::overwrite, Write::accumulate})
    check("rms_norm_backward", [write](auto& s, auto x, auto y, auto z, auto w, auto wide, auto sums, auto, auto) {
      const Tensor<float> rstd(wide.data(), {37});
      enqueue(
          s,
          RmsNormBackward<T>{
              .x = x, .weight = w, .rstd = rstd, .dy = y, .dx = z, .dx_write = write, .dw = sums, .dw_write = write});
    });
  check("rope", [](auto& s, auto x, auto, auto, auto, auto wide, auto, auto, auto) {
    const Tensor<float> table(wide.data(), {5, 16});
    enqueue(s, RotaryTable{.theta = 1e4f, .table = table});
    enqueue(s, Rope<T>{.x = x, .table = table, .rotation = Rotation::forward});
  });
  check("rms_norm of heads", [](auto& s, auto x, auto y, auto z, auto, auto wide, auto sums, auto, auto) {
    const Tensor<float> rstd(wide.data(), {3 * 37});
    const Tensor<const T> w(x.data(), {32});
    enqueue(s, RmsNorm<T>{.x = x, .weight = w, .eps = 1, .y = y, .rstd = rstd});
    enqueue(s, RmsNormBackward<T>{.x = x, .weight = w, .rstd = rstd, .dy = y, .dx = z, .dw = sums.slice(0, 32)});
  });
  check("bias", [](auto& s, auto x, auto, auto, auto w, auto, auto sums, auto, auto) {
    enqueue(s, AddBias<T>{.bias = w, .y = x});
    enqueue(s, BiasBackward<T>{.dy = x, .dbias = sums});
  });
  check("scale", [](auto& s, auto x, auto y, auto, auto, auto, auto, auto, auto) {
    enqueue(s, Scale<T>{.x = x, .y = y, .factor = 2});
    enqueue(s, Scale<T>{.x = x, .y = y, .factor = 2, .write = Write::accumulate, .dropout = {.rate = 0.5f, .key = 1}});
  });
  check("swiglu", [](auto& s, auto x, auto y, auto z, auto, auto, auto, auto, auto) {
    enqueue(s, SwiGlu<T>{.gate = x, .up = y, .h = z});
  });
  check("swiglu_backward", [](auto& s, auto x, auto y, auto z, auto, auto, auto, auto, auto) {
    enqueue(s, SwiGluBackward<T>{.gate = x, .up = y, .dh = z});
  });
  check("embedding", [](auto& s, auto x, auto y, auto, auto, auto, auto, auto tokens, auto) {
    enqueue(s, Embedding<T>{.table = x, .tokens = tokens, .out = y});
  });
  for (const Write write : {Write::overwrite, Write::accumulate})
    check("embedding_backward", [write](auto& s, auto x, auto, auto, auto, auto wide, auto, auto tokens, auto) {
      enqueue(s, EmbeddingBackward<T>{.tokens = tokens, .dy = x, .dtable = wide, .write = write});
    });
  check("cross_entropy", [](auto& s, auto x, auto, auto, auto, auto, auto, auto tokens, auto total) {
    enqueue(s, CrossEntropy<T>{.logits = x, .targets = tokens, .scale = 1, .loss = total});
  });
  check("cross_entropy_loss", [](auto& s, auto x, auto, auto, auto, auto, auto, auto tokens, auto total) {
    enqueue(s, CrossEntropyLoss<T>{.logits = x, .targets = tokens, .loss = total});
  });
  check("cross_entropy_fold and the like",
        [](auto& s, auto x, auto, auto, auto, auto wide, auto, auto tokens, auto total) {
          const Tensor<double> state(reinterpret_cast<double*>(wide.data()), {37, 3});
          enqueue(s, CrossEntropyFold<T>{.logits = x, .first = 0, .targets = tokens, .state = state});
          enqueue(s, CrossEntropySum{.state = state, .loss = total});
          enqueue(s, CrossEntropyGradient<T>{.logits = x, .first = 0, .targets = tokens, .scale = 1, .state = state});
        });
  check("add", [](auto& s, auto x, auto y, auto...) { enqueue(s, Add<T>{.x = x, .y = y}); });
  check("copy",
        [](auto& s, auto x, auto, auto, auto, auto wide, auto...) { enqueue(s, Copy<T, float>{.x = x, .y = wide}); });
  check("fill", [](auto& s, auto x, auto...) { enqueue(s, Fill<T>{.y = x, .value = 1}); });
}

TEST(MetaCosts, OfTheOptimizerAreTheCpus) {
  for (const bool with_model : {false, true})
    expect_equal_costs("adamw", [&](auto d, auto& arena, auto& stream) {
      using D = decltype(d);
      const Maker<D> maker{arena};
      const Tensor<float> x = maker.template make<float>({50001});
      const Tensor<bf16> model = with_model ? maker.template make<bf16>({50001}) : Tensor<bf16>();
      const Tensor<StepDecision> step = maker.template make<StepDecision>({1});
      const Tensor<double> sums = maker.template make<double>({1, 2});
      const Tensor<std::int64_t> largest = maker.template make<std::int64_t>({1});
      const Tensor<std::int64_t> exact = maker.template make<std::int64_t>({1, 2});
      const Tensor<StepInputs> inputs = maker.template make<StepInputs>({1});
      enqueue(stream, SumOfSquares{.x = x, .sum = sums});
      enqueue(stream, DecideStep{.inputs = inputs, .sums = sums, .step = step});
      enqueue(stream, LargestMagnitude{.x = x, .largest = largest});
      enqueue(stream, FixedPointSquares{.x = x, .largest = largest, .sum = exact});
      enqueue(stream, DecideStep{.inputs = inputs, .sums = sums, .largest = largest, .exact = exact, .step = step});
      enqueue(stream,
              AdamWStep<bf16>{
                  .step = step, .main = x, .first_moment = x, .second_moment = x, .gradient = x, .model = model});
    });
}

TYPED_TEST(MetaCosts, OfAttentionAreTheCpus) {
  using T = TypeParam;
  for (const std::int64_t length : {1, 7, 257}) {
    const AttentionShape shape{.sequences = 2, .sequence_length = length, .heads = 4, .kv_heads = 2, .head_dim = 16};
    expect_equal_costs("attention", [&](auto d, auto& arena, auto& stream) {
      using D = decltype(d);
      const Maker<D> maker{arena};
      const Tensor<T> q = maker.template make<T>({shape.tokens(), 64}),
                      out = maker.template make<T>({shape.tokens(), 64});
      const Tensor<T> k = maker.template make<T>({shape.tokens(), 32}),
                      v = maker.template make<T>({shape.tokens(), 32});
      const Tensor<float> lse = maker.template make<float>({8, length});
      enqueue(stream, Attention<T>{.shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse});
      enqueue(
          stream,
          AttentionBackward<T>{
              .shape = shape, .q = q, .k = k, .v = v, .out = out, .lse = lse, .dout = out, .dq = q, .dk = k, .dv = v});
    });
  }
}

TEST(Meta, PlansForMoreThreadsThanTheMachineHasAndLeavesTheTeamSizeAlone) {
  const int before = omp_get_max_threads();
  Meta::Arena arena = Meta::Arena::unbounded();
  Meta::Stream few(arena, 1), many(arena, 96);
  EXPECT_EQ(omp_get_max_threads(), before);
  const Tensor<bf16> a = arena.allocate<bf16>(Meta::Arena::End::low, {4096, 1 << 20});  // no memory stands behind it
  const Tensor<bf16> c = arena.allocate<bf16>(Meta::Arena::End::low, {4096, 4096});
  const std::int64_t tensors = arena.used();
  enqueue(few, Matmul<bf16>{.a = a, .b = transposed(a), .c = c});
  const std::int64_t one = arena.peak() - tensors;
  enqueue(many, Matmul<bf16>{.a = a, .b = transposed(a), .c = c});
  EXPECT_GT(arena.peak() - tensors, 8 * one);
  EXPECT_EQ(omp_get_max_threads(), before);
  EXPECT_EQ(arena.used(), tensors);
}

TEST(Meta, RefusesTheShapesThatTheCpuRefuses) {
  Meta::Arena arena = Meta::Arena::unbounded();
  Meta::Stream stream(arena, 1);
  const Tensor<float> x(nullptr, {2, 3}), y(nullptr, {3, 2});
  EXPECT_THROW(enqueue(stream, Add<float>{.x = x, .y = y}), LogicError);
  EXPECT_THROW((enqueue(stream, Matmul<float>{.a = x, .b = x, .c = y})), LogicError);
}

}  // namespace
}  // namespace fsdp::device
