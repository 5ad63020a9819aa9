// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compiles the stacks that `tessera plan` knows, for one device.
#pragma once

#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/run/planned_step.hpp>

#include "planned_stack.hpp"

namespace fsdp::stacks {

template <class Model>
train::EstimatedStep estimate_on(const train::FlagSet& flags, const cli::Train& train, const plan::Cluster& cluster,
                                 const train::PlannedComm& comm, bool tells) {
  return train::estimated_step<Model>(train.options, cluster, comm, flags,
                                      cli::sharding_of<typename Model::Stack::Sharding>(train.stack.sharding),
                                      train.stack.tiling, resolve(train.optimizer), tells);
}

template <class Target, class Strategy, class Precision>
PlannedStack planned_stack() {
  using Comm = comm::Simulated<device::MetaOf<Target>>;
  using Model = Llama<Stack<Strategy, Comm, Precision, tiling::RunTimeTiling, Ulysses>>;
  return {.takes = cli::takes<Strategy>,
          .offload = offloads_optimizer_of<Strategy> ? cli::OffloadChoice::optimizer : cli::OffloadChoice::none,
          .precision = policy_text<Precision>(),
          .estimate = estimate_on<Model>};
}

/// Adds the stacks of all strategies with one precision.
template <class Target, class Precision>
void add_stacks(std::vector<PlannedStack>& list) {
#define FSDP_STRATEGY(type) list.push_back(planned_stack<Target, type, Precision>());
  FSDP_STRATEGIES
#undef FSDP_STRATEGY
}

template <class Target>
std::vector<PlannedStack> planned_stacks() {
  std::vector<PlannedStack> list;
  add_stacks<Target, Fp32>(list);
  add_stacks<Target, Bf16Mixed>(list);
  add_stacks<Target, Bf16Wire<Bf16Mixed>>(list);
  return list;
}

}  // namespace fsdp::stacks
