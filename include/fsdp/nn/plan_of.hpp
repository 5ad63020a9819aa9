// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tiled modules: `plan_of(context, *this)`, the tiling plan of a module from the context's table
/// (tessera/fsdp/nn/tile_plans.hpp), and `repeat`, the loop over tiles, which a dry run cuts short. A tiled module
/// states its sizes, `tiling::Problem problem(std::int64_t tokens) const`, and requests its plan in forward and
/// backward. Dry runs must be able to run it in isolation: as a Module with `hidden` columns, as a head with `loss`
/// and `loss_only`, or by its `dry_run(context, weights, gradients, micro_batches) const`.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/nn/tile_plans.hpp>

namespace fsdp::nn {

/// Calls each(i) for every i below `count`. alike(i) returns whether tile i has the same memory and work as the tile
/// before it. On a device that only counts, `each` is called for the first two tiles of a run of such tiles, and the
/// second tile's work is counted again for each later tile. The first tile is not representative: its write of a
/// gradient may be the first, which overwrites. On a device that lists its matmuls, every tile is called.
template <class L, class Alike, class Each>
void repeat(Context<L>& context, std::size_t count, Alike alike, Each each) {
  if constexpr (L::Device::counts_only) {
    device::Counters& counters = context.stream.counters;
    device::Counters work;  // work of the last tile that was called
    for (std::size_t i = 0; i < count; ++i) {
      if (counters.matmuls == nullptr && i >= 2 && alike(i) && alike(i - 1)) {
        counters.add(work);
        continue;
      }
      const device::Counters before = counters;
      each(i);
      work = counters.since(before);
    }
  } else {
    for (std::size_t i = 0; i < count; ++i) each(i);
  }
}

namespace detail {

/// Runs a module on Meta, as ModuleDryRun::peak specifies.
template <class L, class M>
void run_alone(const M& module, Context<L>& context, const typename M::Weights& weights,
               const typename M::Gradients& gradients, int micro_batches) {
  if constexpr (requires { module.dry_run(context, weights, gradients, micro_batches); }) {
    module.dry_run(context, weights, gradients, micro_batches);
  } else {
    static_assert(Module<M, L> || LossModule<M, L>,
                  "fsdp: a tiled module is run alone to plan its tiles, and this one has neither forward and backward "
                  "as nn::Module, nor loss and loss_only as nn::LossModule; give it dry_run(context, weights, "
                  "gradients, micro_batches), see tessera/fsdp/nn/plan_of.hpp");
    const auto x = device::unbacked<typename L::Compute>({context.tokens(), module.hidden});  // [T, H]
    if constexpr (LossModule<M, L>) {
      const auto targets = device::unbacked<const std::int32_t>({context.tokens()});  // [T]
      const auto loss = device::unbacked<double>({1});
      if (micro_batches == 0) module.loss_only(context, weights, x, targets, loss);
      for (int i = 0; i < micro_batches; ++i) module.loss(context, weights, gradients, x, targets, 1.0f, x, loss);
    } else {
      typename M::Saved saved{};
      module.forward(context, weights, saved, x, x);
      if (micro_batches > 0) module.backward(context, weights, gradients, saved, x);
    }
  }
}

}  // namespace detail

/// Adds a module that is compiled for `L`, a Local of Meta, for plans of `threads` threads. Dry runs of models call it
/// automatically. Call it for a context that you construct for another device, if its modules plan tiles.
template <class L, class M>
void add_dry_run(TilePlans& plans, const M& module, int threads) {
  const auto peak = [module, threads](const tiling::TilePlan& plan, std::int64_t tokens, int micro_batches) {
    using Compute = typename L::Compute;
    using Accumulate = typename L::Accumulate;
    auto arena = L::Arena::unbounded();
    typename L::Device::Stream stream(arena, threads);
    Context<L> context{
        .arena = arena, .stream = stream, .plans = shared_plans(TilePlans(plan)), .sequence_length = tokens};
    std::array<typename L::Weight, M::parameter_count> weights;  // adjacent in memory
    std::array<GradientView<Accumulate>, M::parameter_count> gradients;
    std::array<bool, M::parameter_count> written{};
    const auto parameters = flatten<M::template FieldsOf>(module.parameters());
    std::int64_t elements = 0;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Shape& shape = parameters[i].shape;
      weights[i] = Tensor<const Compute>(device::unbacked<const Compute>({}).data() + elements, shape);
      if constexpr (has_float_weights<typename L::Precision>)
        weights[i] = {weights[i], device::unbacked<const float>(shape)};
      gradients[i] = {{device::unbacked<Accumulate>({}).data() + elements, shape}, &written[i]};
      elements += shape.numel();
    }
    detail::run_alone<L>(module, context, unflatten<M::template FieldsOf>(weights),
                         unflatten<M::template FieldsOf>(gradients), micro_batches);
    return arena.peak();
  };
  plans.add({.kind = typeid(typename M::Parameters),
             .problem = [module](std::int64_t tokens) { return module.problem(tokens); },
             .peak = peak});
}

/// Returns a module's plan for the context's tokens. In a dry run, adds the module.
template <class L, class M>
const tiling::TilePlan& plan_of(Context<L>& context, const M& module) {
  static_assert(
      requires {
        { module.problem(std::int64_t{}) } -> std::same_as<tiling::Problem>;
      },
      "fsdp: a tiled module lacks tiling::Problem problem(std::int64_t tokens) const, the sizes that tilings plan "
      "with; see tessera/tiling/problem.hpp");
  const tiling::Problem problem = module.problem(context.tokens());
  const ModuleKind kind = typeid(typename M::Parameters);
  if constexpr (L::Device::counts_only)
    if (!context.plans->fixed() && context.plans->find(kind, problem) == nullptr)
      add_dry_run<L>(*context.plans, module, context.stream.threads());
  return context.plans->plan(kind, problem);
}

}  // namespace fsdp::nn
