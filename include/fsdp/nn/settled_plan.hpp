// SPDX-License-Identifier: Apache-2.0
/// @file
/// A module's tiling plan, with the scratch that matmuls take beside it in mind.
///
/// A policy knows the bytes of a module's own tensors. The matmul library takes scratch as well, and with many threads
/// more for a tile than for the whole sequence: as many copies of a weight gradient as there are threads. How much that
/// is, a dry run of the module says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include <fsdp/core/tensor.hpp>
#include <fsdp/device/meta.hpp>
#include <fsdp/nn/module.hpp>
#include <tiling/policies.hpp>

namespace fsdp::nn {

/// Where the dry run of a module of `L` takes place.
template <class L>
using Dry = Local<device::MetaFor<typename L::Device>, typename L::Precision>;

/// Its address tells kinds of modules apart.
template <class Kind>
inline constexpr char kind_mark = 0;

/// The tiling's plan, or Untiled's where that takes fewer bytes. `peak_of(plan)` are all bytes of the module with a
/// plan, scratch included. A context remembers one for each kind of module, which is that of PeakOf, and problem: its
/// tiling and its threads must stay what they are.
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

/// A tensor for dry runs: its address stands for memory that nobody reads.
template <class T>
Tensor<T> unbacked(const Shape& shape) {
  return {reinterpret_cast<T*>(device::Meta::unbacked(0)), shape};
}

/// Bytes that `run(context, weights, gradients)` takes at its peak, where `module` is of Dry<L>. All tokens are one
/// sequence; the weights follow each other without a gap.
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

/// The same of a unit's forward and backward, and what as many other units as `repeats` says keep meanwhile.
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
