// SPDX-License-Identifier: Apache-2.0
// The module suite: built-in modules pass, and the flaws of wrong modules are reported in words.
#include <tessera/fsdp/testing/module.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <examples/19_own_sequence/causal_mean.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/fsdp/nn/transformer_block.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

#include "failures.hpp"

namespace fsdp::testing {

/// What WrongMlp and HalfMean do wrong on the CPU.
enum class Mistake : std::uint8_t {
  none,
  wrong_sign,     ///< of the gradient of `up`
  overwrites,     ///< instead of adding to the gradient of `down`
  hides_memory,   ///< allocates memory that a dry run does not
  leaks,          ///< keeps temporary memory
  writes_behind,  ///< its output
  changes_a_weight,
  throws,
  reads_what_nobody_wrote,  ///< temporary memory
  tiles_differ,             ///< adds to y if there are ten tiles
  omits_ranges,             ///< the stage `after` of HalfMean reads only the last range
};
inline Mistake mistake = Mistake::none;  // a run-time value, so that each module is compiled once

template <class L>
struct WrongMlp : nn::SwiGluMlp<L> {
  using Base = nn::SwiGluMlp<L>;
  using typename Base::Compute;
  using typename Base::Gradients;
  using typename Base::Saved;
  using typename Base::Weights;

  void forward(nn::Context<L>& context, const Weights& weights, Saved& saved, Tensor<const Compute> x,
               Tensor<Compute> y) const {
    Base::forward(context, weights, saved, x, y);
    if constexpr (!L::Device::counts_only) spoil(context, weights, y);
  }
  void backward(nn::Context<L>& context, const Weights& weights, const Gradients& gradients, const Saved& saved,
                Tensor<Compute> dy) const {
    if (mistake == Mistake::overwrites) *gradients.down.written = false;
    Base::backward(context, weights, gradients, saved, dy);
    if (L::Device::counts_only || mistake != Mistake::wrong_sign) return;
    for (auto& value : std::span(gradients.up.tensor.data(), static_cast<std::size_t>(gradients.up.tensor.numel())))
      value = -value;
  }

 private:
  void spoil(nn::Context<L>& context, const Weights& weights, Tensor<Compute> y) const {
    if (mistake == Mistake::leaks) context.arena.template allocate<float>(L::Arena::End::high, {64});
    typename L::Frame frame(context.arena);
    switch (mistake) {
      case Mistake::hides_memory: frame.template allocate<std::uint8_t>({1 << 20}); break;
      case Mistake::writes_behind: y.data()[y.numel()] = 1; break;
      case Mistake::changes_a_weight: const_cast<Compute*>(weights.gate.data())[0] = 0.5f; break;
      case Mistake::throws: throw InputError("no such size");
      case Mistake::reads_what_nobody_wrote:
        y.data()[0] += 0.0f * frame.template allocate<float>({1 << 18}).data()[(1 << 18) - 1];
        break;
      case Mistake::tiles_differ:
        if (context.plans->plan(typeid(typename Base::Parameters), this->problem(30)).tiles.size() == 10)
          y.data()[0] += 1;
        break;
      default: break;
    }
  }
};

struct TestedWrongMlp {
  template <class L>
  static WrongMlp<L> make(const ModuleSizes& sizes) {
    return {{{}, sizes.hidden, 2 * sizes.hidden}};
  }
  static std::vector<ModuleSizes> sizes() { return {{1, 5, 12}}; }
};

template <class L>
struct HalfMean : mixer::CausalMean<L> {
  using Mean = mixer::CausalMean<L>;
  using Compute = typename L::Compute;
  void after(nn::Context<L>& rows, const nn::Nothing& shared, const typename Mean::Weights& weights,
             typename Mean::RowsSaved& saved, Tensor<const Compute> x, std::span<const nn::HeadRange> ranges,
             std::span<const Tensor<Compute>> outs, Tensor<Compute> y) const {
    const std::size_t read = mistake == Mistake::omits_ranges ? 1 : ranges.size();
    Mean::after(rows, shared, weights, saved, x, ranges.last(read), outs.last(read), y);
  }
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
  static HalfMean<L> make(const ModuleSizes& sizes) {
    return {{{}, sizes.hidden, 6}};
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(OurMlp, ModuleSuite, OurMlp);
INSTANTIATE_TYPED_TEST_SUITE_P(OurBlock, ModuleSuite, OurBlock);
INSTANTIATE_TYPED_TEST_SUITE_P(OurMean, ModuleSuite, OurMean);

/// Expects that `check` reports this failure for the module with this mistake.
void expect_found(Mistake one, void (*check)(), std::string_view asked, std::string_view where,
                  std::string_view found) {
  expect_sentence(failures_with(mistake, one, check), asked, where, found);
}
constexpr auto check_adds = check_module_adds<TestedWrongMlp>;
constexpr auto check_costs = check_module_costs<TestedWrongMlp, Fp32>;

TEST(WrongModules, AWrongGradientSignIsFound) {
  expect_found(Mistake::wrong_sign, check_module_gradients<TestedWrongMlp>, "backward gives the derivatives of forward",
               "1 x 5 tokens, hidden 12", "the gradient of mlp.up_proj");
}
TEST(WrongModules, OverwrittenInsteadOfAccumulatedGradientsAreFound) {
  expect_found(Mistake::overwrites, check_adds, "gradients of micro-batches add up", "1 x 5 tokens",
               "the gradient of mlp.down_proj.weight differs by");
}
TEST(WrongModules, ReadsOfUninitializedMemoryAreFound) {
  expect_found(Mistake::reads_what_nobody_wrote, check_adds, "gradients of micro-batches", "1 x 5 tokens",
               "y holds numbers that are not finite: memory was read that nobody had written");
}
TEST(WrongModules, OutOfBoundsWritesAreFound) {
  constexpr auto asked = "a module writes y, dx and the gradients of its weights, and nothing else";
  expect_found(Mistake::writes_behind, check_adds, asked, "1 x 5 tokens", "memory beside x, y or dy was written");
  expect_found(Mistake::changes_a_weight, check_adds, asked, "1 x 5 tokens", "a weight was changed");
}
TEST(WrongModules, TemporaryMemoryKeptAfterTheCallIsFound) {
  expect_found(Mistake::leaks, check_adds, "forward gives temporary memory back", "1 x 5 tokens", "L::Frame");
}
TEST(WrongModules, ExceptionsAreReportedWithTheCase) {
  constexpr auto asked = "a module runs at every size without an error";
  for (const auto& check : {check_adds, check_costs})
    expect_found(Mistake::throws, check, asked, "1 x 5 tokens, hidden 12, tiling off", "an error: no such size");
}
TEST(WrongModules, ResultsThatDependOnTilesAreFound) {
  expect_found(Mistake::tiles_differ, check_module_tilings<TestedWrongMlp, Fp32>, "are those of the untiled module",
               "tiling tokens:3", "y differs by");
}
TEST(WrongModules, AStageThatOmitsARangeIsFound) {
  expect_found(Mistake::omits_ranges, check_module_stages<OurMean>, "compute what the whole block computes",
               "weights side by side, ranks that share the rows: 1, parts of the middle: 2", "y differs by");
}
TEST(WrongModules, MemoryThatTheDryRunMissesIsFound) {
  expect_found(Mistake::hides_memory, check_costs, "a dry run (device Meta) counts", "1 x 5 tokens",
               "bytes of the arena at its peak");
}

}  // namespace
}  // namespace fsdp::testing
