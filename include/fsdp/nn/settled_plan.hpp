// SPDX-License-Identifier: Apache-2.0
/// @file
/// A module's tiling plan, chosen with the scratch of its matmuls included.
///
/// A tiling policy knows the bytes of a module's own tensors. The matmul library takes scratch as well. With many
/// threads it can take more for a tile than for the whole sequence: one copy of a weight gradient per thread. A dry run
/// of the module measures it, as in training. Evaluation has the plan of training, and no batch changes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <tessera/fsdp/core/tensor.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/tiling/policies.hpp>

namespace fsdp::nn {

/// The Local of a dry run of a module that is compiled for `L`.
template <class L>
using Dry = Local<device::MetaFor<typename L::Device>, typename L::Precision>;

/// Its address tells kinds of modules apart.
template <class Kind>
inline constexpr char kind_mark = 0;

/// Returns the tiling's plan, or Untiled's if that takes fewer bytes. `peak_of(plan)` returns the module's peak bytes
/// under a plan, scratch included. The context caches one plan per kind of module (told apart by the type PeakOf) and
/// problem, so its tiling and its number of threads must not change.
template <class L, class PeakOf>
tiling::TilePlan settled_plan(Context<L>& context, const tiling::Problem& problem, PeakOf peak_of) {
  if (context.decided != nullptr) return *context.decided;
  for (const KnownPlan& known : context.plans)
    if (known.kind == &kind_mark<PeakOf> && known.problem == problem) return known.plan;
  tiling::TilePlan plan = context.tiling.plan(problem);
  tiling::TilePlan untiled = tiling::Untiled{}.plan(problem);
  if (plan != untiled && peak_of(plan) > peak_of(untiled)) plan = std::move(untiled);
  return context.plans.emplace_back(KnownPlan{&kind_mark<PeakOf>, problem, std::move(plan)}).plan;
}

/// Returns a tensor for dry runs, whose memory nobody reads.
template <class T>
Tensor<T> unbacked(const Shape& shape) {
  return {reinterpret_cast<T*>(device::Meta::unbacked(0)), shape};
}

/// Returns the peak bytes of `run(context, weights, gradients)`; `module` is compiled for Dry<L>. All tokens form one
/// sequence; the weights are adjacent.
template <class L, class Module, class Run>
std::int64_t dry_peak(const Context<L>& context, const Module& module, const tiling::TilePlan& plan, Run run) {
  using Meta = typename Dry<L>::Device;
  auto arena = Meta::Arena::unbounded();
  typename Meta::Stream stream(arena, context.stream.threads());
  Context<Dry<L>> dry{.arena = arena, .stream = stream, .sequence_length = context.tokens(), .decided = &plan};
  std::array<Tensor<const typename L::Compute>, Module::parameter_count> weights;
  std::array<GradientView<typename L::Accumulate>, Module::parameter_count> gradients;
  std::array<bool, Module::parameter_count> written{};
  const auto parameters = flatten<Module::template FieldsOf>(module.parameters());
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Shape& shape = parameters[i].shape;
    weights[i] = {unbacked<const typename L::Compute>({}).data() + elements, shape};
    gradients[i] = {{unbacked<typename L::Accumulate>({}).data() + elements, shape}, &written[i]};
    elements += shape.numel();
  }
  run(dry, unflatten<Module::template FieldsOf>(weights), unflatten<Module::template FieldsOf>(gradients));
  return arena.peak();
}

/// Returns the peak bytes of a unit's forward and backward, plus what the other `plan.repeats` - 1 units keep
/// meanwhile.
template <class L, class Module>
std::int64_t dry_peak(const Context<L>& context, const Module& module, const tiling::TilePlan& plan) {
  const auto x = unbacked<typename L::Compute>({context.tokens(), module.hidden});  // [T, H]
  const auto run = [&](auto& dry, const auto& weights, const auto& gradients) {
    typename Module::Saved saved{};
    module.forward(dry, weights, saved, x, x);
    module.backward(dry, weights, gradients, saved, x);
  };
  return dry_peak(context, module, plan, run) + (plan.repeats - 1) * plan.kept_bytes;
}

}  // namespace fsdp::nn
