// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/buffer/layout_policies.hpp>
#include <tessera/fsdp/precision/by_tensor.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>

#include <support/stacks/runners.hpp>
#include <support/stacks/threads_run.hpp>

namespace fsdp::test {

Runners variants() {
  using HybridFull = HybridShard<FullyShard<>, OptimizerAcross::sharded>;
  return {{"replicated", run_watching<Replicated>},
          {"fsdp2/owned", run_on_threads<WithLayout<FullyShard<>, buffer::Owned>>},
          {"fsdp2/bf16", run_on_threads<FullyShard<>, Bf16Mixed>},
          {"fsdp2/bf16+fp32", run_on_threads<FullyShard<>, PrecisionBy<Fp32, Bf16Mixed>, Ulysses>},
          {"fsdp2/offload/bf16+fp32", run_on_threads<Offload<FullyShard<>>, PrecisionBy<Fp32, Bf16Mixed>>},
          {"fsdp2/bf16-wire", run_on_threads<FullyShard<>, Bf16Wire<Fp32>>},
          {"fsdp2/offload", run_on_threads<Offload<FullyShard<>>>},
          {"hybrid:K:full/bf16", run_on_threads<HybridFull, Bf16Mixed>},
          {"hybrid:K:full/offload/bf16", run_on_threads<Offload<HybridFull>, Bf16Mixed>}};
}

}  // namespace fsdp::test
