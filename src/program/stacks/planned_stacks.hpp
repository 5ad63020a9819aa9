// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compiles the stacks that `tessera plan` knows, for one device.
#pragma once

#include <optional>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/precision/by_tensor.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/run/planned_step.hpp>

#include "../cli/stack_choice.hpp"
#include "planned_stack.hpp"

namespace fsdp::stacks {

template <class Target>
std::optional<train::EstimatedStep> estimate_on(const PlannedRun& run) {
  const cli::StackChoice& asked = run.train.stack;
  std::optional<train::EstimatedStep> step;
  const auto estimate_with = [&]<class Strategy, class Precision>() {
    constexpr bool offloads = offloads_optimizer_of<Strategy>;
    if (step || !cli::takes<Strategy>(asked.sharding) || offloads != (asked.offload == cli::OffloadChoice::optimizer) ||
        policy_text<Precision>() != cli::precision_text(asked))
      return;
    using Comm = comm::Simulated<device::MetaOf<Target>>;
    using Model = Llama<Stack<Strategy, Comm, Precision, tiling::RunTimeTiling, Ulysses>>;
    step = train::estimated_step<Model>(run.train.options, run.cluster, run.comm, run.flags,
                                        cli::sharding_of<Strategy>(asked.sharding), asked.tiling,
                                        resolve(run.train.optimizer), run.tells);
  };
  const auto estimate_in = [&]<class Precision>() {
#define FSDP_STRATEGY(type) estimate_with.template operator()<type, Precision>();
    FSDP_STRATEGIES
#undef FSDP_STRATEGY
  };
  estimate_in.template operator()<Fp32>();
  estimate_in.template operator()<Bf16Mixed>();
  estimate_in.template operator()<Bf16Wire<Bf16Mixed>>();
#ifdef TESSERA_BF16_FP32  // set in cmake/stacks.cmake: these stacks are not compiled into the library
  estimate_in.template operator()<PrecisionBy<Fp32, Bf16Mixed>>();
#endif
  return step;
}

}  // namespace fsdp::stacks
