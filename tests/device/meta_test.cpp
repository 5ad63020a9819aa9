// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/device/meta.hpp>

#include <omp.h>

#include "reference.hpp"
#include "trace.hpp"

namespace fsdp::device {
namespace {

using namespace reference;

/// Compares the costs of Meta and Cpu.
template <class Operation>
void expect_cpu_costs(const char* name, const Operation& operation) {
  for (const int threads : team_sizes()) {
    Ledger ledger;
    expect_equal_costs<Cpu, Meta>(name, Cpu::Arena(ledger, std::int64_t{4} << 20), threads, operation);
  }
}

template <class T>
class MetaCosts : public ::testing::Test {};
using Types = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(MetaCosts, Types);

TYPED_TEST(MetaCosts, OfMatmulsMatchTheCpu) {
  using T = TypeParam;
  for (const std::int64_t m : {1, 15, 300})
    for (int flags = 0; flags < 8; ++flags)
      expect_cpu_costs("matmul", [&](auto d, auto& arena, auto& stream) {
        using D = decltype(d);
        const Maker<D> maker{arena, stream};
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

TYPED_TEST(MetaCosts, OfElementwiseOperationsMatchTheCpu) {
  for_each_traced_operation<TypeParam>(
      37, {}, [](const char* name, const auto& operation) { expect_cpu_costs(name, operation); });
}

TEST(MetaCosts, OfTheOptimizerMatchTheCpu) {
  expect_cpu_costs("adamw", traced_optimizer<float>());
  expect_cpu_costs("adamw", traced_optimizer<bf16>());
}

TYPED_TEST(MetaCosts, OfAttentionMatchTheCpu) {
  for (const std::int64_t length : {1, 7, 257})
    expect_cpu_costs("attention",
                     traced_attention<TypeParam>(
                         {.sequences = 2, .sequence_length = length, .heads = 4, .kv_heads = 2, .head_dim = 16}));
}

TEST(Meta, PlansForMoreThreadsThanTheMachineHas) {
  const int before = omp_get_max_threads();
  Meta::Arena arena = Meta::Arena::unbounded();
  Meta::Stream few(arena, 1), many(arena, 96);
  EXPECT_EQ(omp_get_max_threads(), before);
  const Tensor<bf16> a = arena.allocate<bf16>(Meta::Arena::End::low, {4096, 1 << 20});  // it has no storage
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

/// The share of attention's FLOPs that Tessera's kernels compute on a GPU.
template <class T>
double own_share(std::int64_t length, std::int64_t head_dim, bool backward) {
  auto arena = MetaOf<Cuda>::Arena::unbounded();
  MetaOf<Cuda>::Stream stream(arena, 1);
  const AttentionShape shape{
      .sequences = 1, .sequence_length = length, .heads = 8, .kv_heads = 1, .head_dim = head_dim};
  const Tensor<T> q = unbacked<T>(shape.queries()), kv = unbacked<T>(shape.keys());
  const Tensor<float> lse = unbacked<float>({8, length});
  if (backward)
    enqueue(
        stream,
        AttentionBackward<T>{
            .shape = shape, .q = q, .k = kv, .v = kv, .out = q, .lse = lse, .dout = q, .dq = q, .dk = kv, .dv = kv});
  else
    enqueue(stream, Attention<T>{.shape = shape, .q = q, .k = kv, .v = kv, .out = q, .lse = lse});
  const Counters& counters = stream.counters;
  return static_cast<double>(counters.own_attention_flops) / static_cast<double>(counters.attention_flops);
}

TEST(MetaCosts, CountAttentionThatCudnnDoesNotCompute) {
  for (const bool backward : {false, true}) {
    EXPECT_EQ(own_share<bf16>(4096, 128, backward), 0);
    EXPECT_EQ(own_share<bf16>(4096, 136, backward), 1) << "the heads are too large";
    EXPECT_EQ(own_share<float>(4096, 128, backward), 1);
    EXPECT_EQ(own_share<bf16>(1 << 15, 128, backward), backward ? 1 : 0) << "scratch is quadratic in the length";
  }
}

}  // namespace
}  // namespace fsdp::device
