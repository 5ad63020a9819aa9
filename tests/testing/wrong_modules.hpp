// SPDX-License-Identifier: Apache-2.0
/// @file
/// An MLP with one selectable flaw, and a block with flawed stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <examples/19_own_sequence/causal_mean.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/nn/swiglu_mlp.hpp>
#include <tessera/fsdp/testing/module_run.hpp>

namespace fsdp::testing {

/// What a flaw changes on the CPU after the correct computation; nothing by default.
struct NoMistake {
  static constexpr bool clears_written = false, hides_memory = false, leaks = false;
  template <class Context, class Weights, class Compute>
  static void after_forward(Context&, const Weights&, Tensor<const Compute>, Tensor<Compute>) {}
  template <class Gradients>
  static void after_backward(const Gradients&) {}
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
      Mistake::after_forward(context, weights, x, y);
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
  template <class Gradients>
  static void after_backward(const Gradients& gradients) {
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
  template <class Context, class Weights, class Compute>
  static void after_forward(Context&, const Weights&, Tensor<const Compute>, Tensor<Compute> y) {
    y.data()[y.numel()] = Compute(1.0f);
  }
};
struct ChangesAWeight : NoMistake {
  template <class Context, class Weights, class Compute>
  static void after_forward(Context&, const Weights& weights, Tensor<const Compute>, Tensor<Compute>) {
    const_cast<Compute*>(weights.gate.data())[0] = Compute(0.5f);
  }
};
struct Throws : NoMistake {
  template <class Context, class Weights, class Compute>
  static void after_forward(Context&, const Weights&, Tensor<const Compute>, Tensor<Compute>) {
    throw InputError("no such size");
  }
};
struct ReadsWhatNobodyWrote : NoMistake {
  template <class Context, class Weights, class Compute>
  static void after_forward(Context& context, const Weights&, Tensor<const Compute>, Tensor<Compute> y) {
    typename std::remove_reference_t<decltype(context.arena)>::Frame frame(context.arena);
    const auto memory = frame.template allocate<float>({1 << 18});
    y.data()[0] = Compute(static_cast<float>(y.data()[0]) + 0.0f * memory.data()[(1 << 18) - 1]);
  }
};
struct TilesDiffer : NoMistake {
  template <class L, class Weights, class Compute>
  static void after_forward(nn::Context<L>& context, const Weights& weights, Tensor<const Compute>, Tensor<Compute> y) {
    const nn::SwiGluMlp<L> mlp{{}, weights.gate.columns(), weights.gate.rows()};
    const auto& plan = context.plans->plan(typeid(typename nn::SwiGluMlp<L>::Parameters), mlp.problem(30));
    if (plan.tiles.size() == 10) y.data()[0] = Compute(static_cast<float>(y.data()[0]) + 1.0f);
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

}  // namespace fsdp::testing
