// SPDX-License-Identifier: Apache-2.0
// Code on documentation pages that is not in any example, to check that it compiles.
// clang-format off
#include <tessera/comm/mpi.hpp>
#include <tessera/fsdp/plan/foreign_estimate.hpp>
#include <tessera/fsdp/sharded.hpp>
#include <tessera/trainer/train_main.hpp>

using Stack = fsdp::Stack<
    fsdp::FullyShard<fsdp::ReshardAfterForward::yes>,   // sharding: FSDP2
    fsdp::comm::Mpi<>,                                  // communication; brings its device, the CPU
    fsdp::Bf16Mixed,                                    // precision: bf16 compute, fp32 main weights and reduction
    fsdp::tiling::TokensPerTile<4096>>;                 // tiling: MLP and loss, 4096 tokens at a time

int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv); }

namespace models {

using Local = Stack::Local;
constexpr std::int64_t hidden = 64, heads = 4, kv_heads = 2, head_dim = 16;
constexpr float eps = 1e-5f;

void made(const char* folder) {
  fsdp::LlamaConfig config = fsdp::LlamaConfig::read(folder);  // or values: {.family = "qwen3", .vocab_size = ...}
  fsdp::nn::ResidualAttention<Local> attention{{}, hidden, heads, kv_heads, head_dim, eps, /*window=*/4096, /*biases=*/true};
  (void)config, (void)attention;
}

}  // namespace models

namespace per_unit {

using namespace fsdp;  // docs/per_unit.md

const PerUnit dense{on("embed_tokens|lm_head", Replicated{}), otherwise(FullyShard<>{})};

const PerUnit experts{on("*experts*", Zero1{}), on({.role = Role::vector, .most = 4096}, Replicated{}), otherwise(Zero3{})};
const Offload<decltype(experts)> in_host_memory{experts};

RunTimeAny chosen(const std::string& pattern, const std::string& strategy) {
  RunTimeAny all{.strategy = FullyShard<>{}};
  const auto of_units = read_strategy<RunTimeAny>(strategy);
  if (of_units) all.units.push_back(part_of(on(TensorPattern::from(pattern, "units: "), *of_units)));
  return all;
}

}  // namespace per_unit

namespace foreign {

using Shards = fsdp::Sharded<Stack>;
const std::vector<fsdp::Unit> units = {{"encoder", {{"w", {4096, 4096}}}}, {"decoder", {{"v", {4096, 4096}}}}};
constexpr double forward_seconds = 0.002, backward_seconds = 0.004;

double planned() {
  const fsdp::plan::Estimate step = fsdp::plan::estimate<Shards>(units, {}, {.micro_batches = 4},
      {.seconds = [](const fsdp::sharding::Task& task) {
         return task.action == fsdp::sharding::Action::forward ? forward_seconds : backward_seconds;
       },
       .own_bytes = 6'000'000'000},
      fsdp::plan::known_cluster("epyc", 64));
  return step.fits() ? step.seconds : 0;
}

}  // namespace foreign
