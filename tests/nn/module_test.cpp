// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/module.hpp>

#include <array>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/embedding.hpp>
#include <tessera/fsdp/nn/loss_head.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

namespace fsdp::nn {
namespace {

using Tokens = Tensor<const std::int32_t>;

template <class L>
struct WithoutBackward : SwiGluMlp<L> {
  void backward() const;
};
template <class L>
struct BlockWithoutBackward : TransformerBlock<L> {
  void backward() const;
};
template <class L>
struct WithoutParameters : SwiGluMlp<L> {
  void parameters() const;
};
template <class L>
struct EntryThatWantsWeightsInBackward : Embedding<L> {
  void backward(Context<L>&, const typename Embedding<L>::Weights&, const typename Embedding<L>::Gradients&,
                Tensor<const std::int32_t>, Tensor<const typename L::Compute>) const;
};
template <class L>
struct WithoutLossOnly : LossHead<L> {
  void loss_only() const;
};

template <class L>
consteval bool concepts_hold() {
  static_assert(Module<SwiGluMlp<L>, L> && Module<ResidualMlp<L>, L>);
  static_assert(BlockModule<ResidualAttention<L>, L> && BlockModule<TransformerBlock<L>, L>);
  static_assert(!BlockWithoutWeightsInBackward<TransformerBlock<L>, L>);
  static_assert(EntryModule<Embedding<L>, L, Tokens> && EntryModule<RotaryEmbedding<L>, L, Tokens>);
  static_assert(EntryWithoutWeightsInBackward<RotaryEmbedding<L>, L, Tokens>);
  static_assert(LossModule<LossHead<L>, L> && GeneratingHead<LossHead<L>, L>);

  static_assert(!Module<int, L> && !BlockModule<int, L> && !EntryModule<int, L, Tokens> && !LossModule<int, L>);
  static_assert(!Module<WithoutBackward<L>, L> && !Module<WithoutParameters<L>, L>);
  static_assert(!Module<Embedding<L>, L> && !Module<LossHead<L>, L>);
  static_assert(!BlockModule<BlockWithoutBackward<L>, L> && !BlockModule<ResidualMlp<L>, L>);
  static_assert(!EntryModule<SwiGluMlp<L>, L, Tokens> && !EntryModule<Embedding<L>, L, Tensor<const float>>);
  static_assert(EntryModule<EntryThatWantsWeightsInBackward<L>, L, Tokens>);
  static_assert(!EntryWithoutWeightsInBackward<EntryThatWantsWeightsInBackward<L>, L, Tokens>);
  static_assert(!LossModule<SwiGluMlp<L>, L> && !LossModule<WithoutLossOnly<L>, L>);
  return true;
}
static_assert(concepts_hold<Local<device::Cpu, Fp32>>());
static_assert(concepts_hold<Local<device::Cpu, Bf16Mixed>>());
static_assert(concepts_hold<Local<device::Meta, Bf16Mixed>>());

using L = Local<device::Meta, Fp32>;
static_assert(!Module<SwiGluMlp<L>, Local<device::Cpu, Fp32>>, "modules of another device do not fit");
static_assert(std::is_same_v<ModuleTypes<Local<device::Cpu, Bf16Mixed>, SwiGluFields>::Weights,
                             SwiGluFields<Tensor<const bf16>>>);
static_assert(std::is_same_v<ModuleTypes<Local<device::Cpu, Bf16Mixed>, SwiGluFields>::Gradients,
                             SwiGluFields<GradientView<float>>>);
static_assert(TransformerBlock<L>::parameter_count == 28 && LossHead<L>::parameter_count == 2);

/// "name [extents]" for each parameter, followed by "= 1" if its initial values are ones.
template <class M>
std::vector<std::string> described(const M& module) {
  std::vector<std::string> list;
  for (const Parameter& parameter : flatten<M::template FieldsOf>(module.parameters())) {
    if (!parameter.present()) continue;
    std::string text = parameter.name;
    for (std::int64_t axis = 0; axis < parameter.shape.rank; ++axis)
      text += (axis == 0 ? " [" : ", ") + std::to_string(parameter.shape[axis]);
    list.push_back(text + (parameter.initial == Initial::ones ? "] = 1" : "]"));
  }
  return list;
}

TEST(Parameters, OfABlockAreInTheOrderOfItsFields) {
  const TransformerBlock<L> block{
      {}, {{}, 12, 6, 3, 4, 1e-5f}, {{}, 12, 35, 1e-5f}};  // hidden 12, 6 heads, 3 key-value heads, head size 4
  EXPECT_EQ(described(block),
            (std::vector<std::string>{"input_layernorm.weight [12] = 1", "self_attn.q_proj.weight [24, 12]",
                                      "self_attn.k_proj.weight [12, 12]", "self_attn.v_proj.weight [12, 12]",
                                      "self_attn.o_proj.weight [12, 24]", "post_attention_layernorm.weight [12] = 1",
                                      "mlp.gate_proj.weight [35, 12]", "mlp.up_proj.weight [35, 12]",
                                      "mlp.down_proj.weight [12, 35]"}));
}

TEST(Parameters, BiasesAndHeadNormsFollowTheOtherParametersOfAttention) {
  ResidualAttention<L> attention{{}, 12, 6, 3, 4, 1e-5f};
  const std::vector<std::string> plain = described(attention);
  attention.biases = attention.head_norms = true;
  std::vector<std::string> all = plain;
  for (const char* const name :
       {"self_attn.q_proj.bias [24]", "self_attn.k_proj.bias [12]", "self_attn.v_proj.bias [12]",
        "self_attn.q_norm.weight [4] = 1", "self_attn.k_norm.weight [4] = 1"})
    all.push_back(name);
  EXPECT_EQ(plain.size(), 5U);
  EXPECT_EQ(described(attention), all);
}

TEST(Parameters, OfPathsOfLowRankAreAdaptersThatStartAtZero) {
  const LowRank<3> paths{.rank = 2, .on = {true, false, true}};
  const auto fields = low_rank_parameters<3>(paths, {{{"qa", "qb"}, {"ka", "kb"}, {"va", "vb"}}}, 12, {24, 6, 6});
  EXPECT_FALSE(fields.a[1].present() || fields.b[1].present());
  EXPECT_TRUE(fields.a[0].adapter && fields.b[0].adapter && fields.a[2].adapter);
  EXPECT_EQ(fields.a[2].shape, (Shape{2, 12}));
  EXPECT_EQ(fields.b[2].shape, (Shape{6, 2}));
  EXPECT_EQ(fields.b[2].initial, Initial::zeros);
  EXPECT_EQ(fields.a[2].initial, Initial::normal(1.0 / 6));
  EXPECT_TRUE(fields.a[2].joins_previous && !fields.a[0].joins_previous);
  EXPECT_EQ(paths.columns(), 4);
}

TEST(Parameters, OfATiedHeadAreThoseOfTheEmbedding) {
  const Embedding<L> embedding{{}, 257, 7};
  EXPECT_EQ(described(embedding), (std::vector<std::string>{"/model.embed_tokens.weight [257, 7]"}));
  for (const bool tied : {false, true}) {
    const LossHead<L> head{{}, 257, 7, 1e-5f, tied};
    const std::string name = tied ? "/model.embed_tokens.weight" : "/lm_head.weight";
    EXPECT_EQ(described(head), (std::vector<std::string>{"/model.norm.weight [7] = 1", name + " [257, 7]"}));
  }
}

TEST(Parameters, HaveARoleAndOnlyMatricesDecay) {
  const auto embedding = flatten<EmbeddingFields>(Embedding<L>{{}, 257, 7}.parameters());
  EXPECT_EQ(embedding[0].role, Role::table);
  EXPECT_TRUE(embedding[0].decays);
  const auto head = flatten<LossHeadFields>(LossHead<L>{{}, 257, 7}.parameters());
  EXPECT_EQ(head[0].role, Role::vector);
  EXPECT_FALSE(head[0].decays);
  EXPECT_EQ(head[1].role, Role::table);
  const auto mlp = flatten<ResidualMlpFields>(ResidualMlp<L>{{}, 12, 35}.parameters());
  EXPECT_EQ(mlp[1].role, Role::matrix);
  EXPECT_TRUE(mlp[1].decays);
  EXPECT_EQ(mlp[1].initial, Initial::normal(0.02));
}

TEST(Flatten, KeepsTheOrderOfNestedFieldsAndIsInvertedByUnflatten) {
  const BlockFields<int> fields{{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, {{11, 12, 13}, {14, 15, 16}}, {{17}, {18}}},
                                {19, {20, 21, 22, {{23, 24}, {25, 26}}, {{27}, {28}}}}};
  const std::array<int, 28> list = flatten<BlockFields>(fields);
  std::array<int, 28> counted{};
  std::iota(counted.begin(), counted.end(), 1);
  EXPECT_EQ(list, counted);
  const BlockFields<int> back = unflatten<BlockFields>(list);
  EXPECT_EQ(back.attention.out, 5);
  EXPECT_EQ(back.mlp.norm, 19);
  EXPECT_EQ(back.mlp.mlp.down_path.a[0], 27);
}

TEST(GradientView, OverwritesAtTheFirstWriteAndAccumulatesAfterwards) {
  bool written = false;
  const GradientView<float> view{{}, &written};
  const GradientView<float> copy = view;
  EXPECT_EQ(view.next(), Write::overwrite);
  EXPECT_EQ(copy.next(), Write::accumulate);
  EXPECT_EQ(view.next(), Write::accumulate);
  written = false;  // reduced
  EXPECT_EQ(copy.next(), Write::overwrite);
}

TEST(Adjacent, MatricesAreContiguousInMemory) {
  std::array<float, 100> memory{};
  const Tensor<float> first(memory.data(), {3, 7});
  const Tensor<float> next(memory.data() + 21, {2, 7});
  const Tensor<float> later(memory.data() + 64, {2, 7});
  EXPECT_TRUE(adjacent<float>(std::array{first, next}));
  EXPECT_FALSE(adjacent<float>(std::array{first, later}));
  EXPECT_FALSE(adjacent<float>(std::array{next, first}));
  EXPECT_FALSE(adjacent<float>(std::array{first, next, later}));
  EXPECT_EQ(stacked<float>(std::array{first, next}).shape(), (Shape{5, 7}));
}

TEST(SideBySide, MatricesAreAdjacentColumnsOfOneMatrix) {
  std::array<float, 100> memory{};
  const auto columns = [&](std::int64_t begin, std::int64_t end, std::int64_t rows = 3) {
    return Tensor<float>::strided(memory.data() + begin, rows, end - begin, 20);
  };
  const Tensor<float> both = side_by_side(std::array{columns(2, 7), columns(7, 9)});
  EXPECT_EQ(both.data(), memory.data() + 2);
  EXPECT_EQ(both.shape(), (Shape{3, 7}));
  EXPECT_EQ(both.row_stride(), 20);
  EXPECT_EQ(side_by_side(std::array{columns(2, 7), columns(8, 9)}).data(), nullptr);
  EXPECT_EQ(side_by_side(std::array{columns(2, 7), Tensor<float>(memory.data() + 7, {3, 2})}).data(), nullptr);
  const Tensor<float> row = side_by_side(std::array{columns(2, 7, 1), Tensor<float>(memory.data() + 7, {1, 2})});
  EXPECT_EQ(row.shape(), (Shape{1, 7}));
  EXPECT_TRUE(row.contiguous());
}

TEST(WriteInParts, ZeroesAGradientOnlyBeforeItsFirstWrite) {
  using Here = Local<device::Cpu, Fp32>;
  std::array<float, 4> memory = {5, 6, 7, 8};
  fsdp::testing::TestRank<device::Cpu> rank(1);
  Context<Here> context{.arena = rank.arena, .stream = rank.stream};
  bool written = false;
  const GradientView<float> gradient{{memory.data(), {2, 2}}, &written};
  write_in_parts<Here>(context, gradient);
  EXPECT_EQ(memory, (std::array<float, 4>{}));
  EXPECT_EQ(gradient.next(), Write::accumulate);
  memory = {1, 2, 3, 4};
  write_in_parts<Here>(context, gradient);
  EXPECT_EQ(memory, (std::array<float, 4>{1, 2, 3, 4}));
  written = false;
  write_in_parts<Here>(context, {{nullptr, {2, 2}}, &written});  // frozen
  EXPECT_FALSE(written);
}

TEST(Context, PollsOnlyIfAPollFunctionIsSet) {
  device::Meta::Arena arena = device::Meta::Arena::unbounded();
  device::Meta::Stream stream(arena, 1);
  Context<L> context{.arena = arena, .stream = stream, .sequences = 3, .sequence_length = 5};
  EXPECT_EQ(context.tokens(), 15);
  context.progress();
  int polls = 0;
  context.poll = [](void* count) { ++*static_cast<int*>(count); };
  context.poll_state = &polls;
  context.progress();
  EXPECT_EQ(polls, 1);
}

}  // namespace
}  // namespace fsdp::nn
