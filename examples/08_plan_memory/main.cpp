// SPDX-License-Identifier: Apache-2.0
// 08: plan memory without training. A dry run executes a real step on a device that stores nothing.
//
// Prints the memory of the rank that needs most, in GiB, for a Llama of 8 billion weights and steps of four
// micro-batches of 8192 tokens. The plan is exact: a run of that stack allocates the same bytes. The dry run itself
// needs almost no memory.
//
// Try next: change the config or the sequence length; change RunTimeTiling::tokens(2048) to {} (untiled); pass another
// optimizer as the last argument.
#include <cstdio>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/fsdp/training/training.hpp>

using Stack = fsdp::Stack<fsdp::RunTimeSharded, fsdp::comm::Threads<>, fsdp::Bf16Mixed, fsdp::tiling::RunTimeTiling>;

int main() {
  const fsdp::LlamaConfig config{.vocab_size = 128256,
                                 .hidden_size = 4096,
                                 .intermediate_size = 14336,
                                 .layers = 32,
                                 .heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128};
  const fsdp::Llama<Stack> model(config, {.recompute = true});
  std::printf("%-9s %5s", "strategy", "ranks");
  for (const auto kind : fsdp::device::memory_kind_names) std::printf(" %11s", kind.data());
  std::printf(" %11s\n", "peak");
  for (const fsdp::RunTimeSharded& strategy :
       {fsdp::RunTimeSharded{fsdp::Zero1{}}, {fsdp::Zero2{}}, {fsdp::Zero3{}}, {fsdp::FullyShard<>{}}})
    for (const int ranks : {1, 8, 64}) {
      const auto request = fsdp::train::plan_request({.sequence_length = 8192, .micro_batches = 4, .threads = 1}, ranks,
                                                     fsdp::plan::most_loaded);
      const fsdp::plan::Plan plan = fsdp::plan::dry_run(model, strategy, fsdp::tiling::RunTimeTiling::tokens(2048),
                                                        request, fsdp::optim::AdamW{});
      std::printf("%-9s %5d", strategy.text().c_str(), ranks);
      for (const std::int64_t bytes : plan.bytes) std::printf(" %11.2f", static_cast<double>(bytes) / (1 << 30));
      std::printf(" %11.2f\n", static_cast<double>(plan.peak_bytes()) / (1 << 30));
    }
}
