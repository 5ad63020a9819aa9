// SPDX-License-Identifier: Apache-2.0
// The module suite: built-in modules pass, and the flaws of wrong modules are reported in words.
#include <tessera/fsdp/testing/module.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <examples/19_own_sequence/causal_mean.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

#include "failures.hpp"

namespace fsdp::testing {

/// What a flaw changes on the CPU after the correct computation; nothing by default.
struct NoMistake {
  static constexpr bool clears_written = false, hides_memory = false, leaks = false;
  static void after_forward(auto&, const auto&, Tensor<float>) {}
  static void after_backward(const auto&) {}
};

template <class L, class Mistake>
struct WrongMlp : nn::SwiGluMlp<L> {
  using Base = nn::SwiGluMlp<L>;
  using typename Base::Compute;
  using typename Base::Gradients;
  using typename Base::Saved;
  using typename Base::Weights;

  void forward(nn::Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    Base::forward(context, weights, saved, x, y);
    if constexpr (!L::Device::counts_only) {
      Mistake::after_forward(context, weights, y);
      if (Mistake::hides_memory) {
        typename L::Frame frame(context.arena);
        frame.template allocate<std::uint8_t>({1 << 20});
      }
      if (Mistake::leaks) context.arena.template allocate<float>(L::Arena::End::high, {64});
    }
  }
  void backward(nn::Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    if constexpr (Mistake::clears_written) *gradients.down.written = false;
    Base::backward(context, weights, gradients, saved, dy);
    if constexpr (!L::Device::counts_only) Mistake::after_backward(gradients);
  }
};

struct WrongSign : NoMistake {
  static void after_backward(const auto& gradients) {
    for (auto& value : std::span(gradients.up.tensor.data(), static_cast<std::size_t>(gradients.up.tensor.numel())))
      value = -value;
  }
};
struct Overwrites : NoMistake {
  static constexpr bool clears_written = true;
};
struct HidesMemory : NoMistake {
  static constexpr bool hides_memory = true;
};
struct Leaks : NoMistake {
  static constexpr bool leaks = true;
};
struct WritesBehind : NoMistake {
  static void after_forward(auto&, const auto&, Tensor<float> y) { y.data()[y.numel()] = 1; }
};
struct ChangesAWeight : NoMistake {
  static void after_forward(auto&, const auto& weights, Tensor<float>) {
    const_cast<float*>(weights.gate.data())[0] = 0.5f;
  }
};
struct Throws : NoMistake {
  static void after_forward(auto&, const auto&, Tensor<float>) { throw InputError("no such size"); }
};
struct ReadsWhatNobodyWrote : NoMistake {
  static void after_forward(auto& context, const auto&, Tensor<float> y) {
    typename std::remove_reference_t<decltype(context.arena)>::Frame frame(context.arena);
    const auto memory = frame.template allocate<float>({1 << 18});
    y.data()[0] += 0.0f * memory.data()[(1 << 18) - 1];
  }
};
struct TilesDiffer : NoMistake {
  template <class L>
  static void after_forward(nn::Context<L>& context, const auto& weights, Tensor<float> y) {
    const nn::SwiGluMlp<L> mlp{{}, weights.gate.columns(), weights.gate.rows()};
    const auto& plan = context.plans->plan(typeid(typename nn::SwiGluMlp<L>::Parameters), mlp.problem(30));
    if (plan.tiles.size() == 10) y.data()[0] += 1;
  }
};

template <class Mistake>
struct TestedWrongMlp {
  template <class L>
  static WrongMlp<L, Mistake> make(const ModuleSizes& sizes) {
    return {{{}, sizes.hidden, 2 * sizes.hidden}};
  }
  static std::vector<ModuleSizes> sizes() { return {{1, 5, 12}}; }
};

/// The stage `after` reads only the last range.
template <class L>
struct HalfMean : mixer::CausalMean<L> {
  using Mean = mixer::CausalMean<L>;
  using Compute = typename L::Compute;
  void after(nn::Context<L>& rows, const nn::Nothing& shared, const typename Mean::Weights& weights,
             typename Mean::RowsSaved& saved, Tensor<const Compute> x, std::span<const nn::HeadRange> ranges,
             std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
    Mean::after(rows, shared, weights, saved, x, ranges.last(1), outs.last(1), y);
  }
};
struct TestedHalfMean {
  template <class L>
  static HalfMean<L> make(const ModuleSizes& sizes) {
    return {{{}, sizes.hidden, 6}};
  }
  static std::vector<ModuleSizes> sizes() { return {{1, 5, 12}}; }
};

namespace {

struct OurMlp {
  template <class L>
  static nn::SwiGluMlp<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 3 * sizes.hidden + 1};
  }
};
struct OurBlock {
  template <class L>
  static nn::TransformerBlock<L> make(const ModuleSizes& sizes) {
    nn::ResidualAttention<L> attention{{}, sizes.hidden, 3, 1, 4, 1e-2f};
    attention.biases = attention.head_norms = sizes.length > 4;  // only at some sizes
    attention.window = 4;
    return {{}, attention, {{}, sizes.hidden, 2 * sizes.hidden, 1e-2f}};
  }
  template <class L>
  static nn::RotaryTable share(nn::Context<L>& context, const ModuleSizes& sizes) {
    const auto table = context.template save<float>({sizes.length, 4});  // [S, d]
    device::enqueue(context.stream, device::RotaryTable{.theta = 100.0f, .table = table});
    return {table};
  }
};
struct OurMean {
  template <class L>
  static mixer::CausalMean<L> make(const ModuleSizes& sizes) {
    return {{}, sizes.hidden, 6};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(OurMlp, ModuleSuite, OurMlp);
INSTANTIATE_TYPED_TEST_SUITE_P(OurBlock, ModuleSuite, OurBlock);
INSTANTIATE_TYPED_TEST_SUITE_P(OurMean, ModuleSuite, OurMean);

TEST(WrongModules, AWrongGradientSignIsFound) {
  expect_failure(check_module_gradients<TestedWrongMlp<WrongSign>>, "backward gives the derivatives of forward",
                 "1 x 5 tokens, hidden 12", "the gradient of mlp.up_proj");
}
TEST(WrongModules, OverwrittenInsteadOfAccumulatedGradientsAreFound) {
  expect_failure(check_module_adds<TestedWrongMlp<Overwrites>>, "gradients of micro-batches add up", "1 x 5 tokens",
                 "the gradient of mlp.down_proj.weight differs by");
}
TEST(WrongModules, ReadsOfUninitializedMemoryAreFound) {
  expect_failure(check_module_adds<TestedWrongMlp<ReadsWhatNobodyWrote>>, "gradients of micro-batches", "1 x 5 tokens",
                 "y holds numbers that are not finite: memory was read that nobody had written");
}
TEST(WrongModules, OutOfBoundsWritesAreFound) {
  constexpr auto asked = "a module writes y, dx and the gradients of its weights, and nothing else";
  expect_failure(check_module_adds<TestedWrongMlp<WritesBehind>>, asked, "1 x 5 tokens",
                 "memory beside x, y or dy was written");
  expect_failure(check_module_adds<TestedWrongMlp<ChangesAWeight>>, asked, "1 x 5 tokens", "a weight was changed");
}
TEST(WrongModules, TemporaryMemoryKeptAfterTheCallIsFound) {
  expect_failure(check_module_adds<TestedWrongMlp<Leaks>>, "forward gives temporary memory back", "1 x 5 tokens",
                 "L::Frame");
}
TEST(WrongModules, ExceptionsAreReportedWithTheCase) {
  constexpr auto asked = "a module runs at every size without an error";
  for (const auto& check :
       {check_module_adds<TestedWrongMlp<Throws>>, check_module_costs<TestedWrongMlp<Throws>, Fp32>})
    expect_failure(check, asked, "1 x 5 tokens, hidden 12, tiling off", "an error: no such size");
}
TEST(WrongModules, ResultsThatDependOnTilesAreFound) {
  expect_failure(check_module_tilings<TestedWrongMlp<TilesDiffer>, Fp32>, "are those of the untiled module",
                 "tiling tokens:3", "y differs by");
}
TEST(WrongModules, AStageThatOmitsARangeIsFound) {
  expect_failure(check_module_stages<TestedHalfMean>, "compute what the whole block computes",
                 "weights side by side, ranks that share the rows: 1, parts of the middle: 2", "y differs by");
}
TEST(WrongModules, MemoryThatTheDryRunMissesIsFound) {
  expect_failure(check_module_costs<TestedWrongMlp<HidesMemory>, Fp32>, "a dry run (device Meta) counts",
                 "1 x 5 tokens", "bytes of the arena at its peak");
}

}  // namespace
}  // namespace fsdp::testing
