// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compiles the stacks that `tessera plan` knows, for one device, and the dry runs of the program's stacks.
#pragma once

#include <vector>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/tiling/policies.hpp>
#include <tessera/trainer/run/estimated_step.hpp>

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

/// Adds these strategies with one precision, each with its optimizer here and in host memory.
template <class Target, class Precision, class... Strategies>
void add_stacks(std::vector<PlannedStack>& list) {
  (list.push_back(planned_stack<Target, Strategies, Precision>()), ...);
  (list.push_back(planned_stack<Target, Offload<Strategies>, Precision>()), ...);
}

template <class Target>
std::vector<PlannedStack> planned_stacks() {
  using namespace cli::compiled;
  std::vector<PlannedStack> list;
  add_stacks<Target, Fp32, sharded, grouped, hybrid_full, replicated>(list);
  add_stacks<Target, Bf16Mixed, sharded, grouped, hybrid_full, replicated>(list);
  add_stacks<Target, Bf16Wire<Bf16Mixed>, sharded, grouped, hybrid_full, replicated>(list);
  return list;
}

template <class Target, class Strategy, class Precision>
using PlannedMeta = plan::MetaTwin<
    Llama<Stack<Strategy, comm::Simulated<device::MetaOf<Target>>, Precision, tiling::RunTimeTiling, Ulysses>>>;

}  // namespace fsdp::stacks

/// Compiles the dry runs of a strategy for a device, with its optimizer there and in host memory; stacks declare them
/// `extern`.
#define FSDP_META_RUN(Target, Strategy, Precision)                          \
  template struct plan::MetaRuns<PlannedMeta<Target, Strategy, Precision>>; \
  template struct plan::MetaRuns<PlannedMeta<Target, Offload<Strategy>, Precision>>;
#define FSDP_META_RUNS(Target, Strategy)     \
  FSDP_META_RUN(Target, Strategy, Fp32)      \
  FSDP_META_RUN(Target, Strategy, Bf16Mixed) \
  FSDP_META_RUN(Target, Strategy, Bf16Wire<Bf16Mixed>)
