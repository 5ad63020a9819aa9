// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/runners.hpp>

#include <algorithm>
#include <map>
#include <string>

#include <fsdp/core/error.hpp>

namespace fsdp::test {

namespace {

/// "fsdp2:2" of "fsdp2:2/bf16".
std::string_view strategy_of(std::string_view stack) { return stack.substr(0, stack.find('/')); }

/// Which of the types whose strategy is chosen at run time.
std::string placements_of(const cli::ShardingChoice& choice) {
  if (choice.full) return "full";
  return choice.number > 0 ? "grouped" : "sharded";
}

}  // namespace

std::int64_t ranks_per_group(std::string_view stack) {
  return std::max<std::int64_t>(cli::parse_sharding(strategy_of(stack)).number, 1);
}

RunResults run(std::string_view stack, const RunOptions& options) {
  static const std::map<std::string, RunResults (*)(const RunOptions&)> compiled = {
      {"fsdp2", run_fsdp2},
      {"fsdp2:no-reshard", run_fsdp2_no_reshard},
      {"fsdp2:K", run_fsdp2_group},
      {"fsdp2/owned", run_fsdp2_owned},
      {"sharded/run-time", run_run_time_sharded},
      {"grouped/run-time", run_run_time_grouped},
      {"full/run-time", run_run_time_full},
      {"fsdp2/bf16", run_fsdp2_bf16},
      {"fsdp2/offload", run_fsdp2_offload},
      {"fsdp2/bf16-wire", run_fsdp2_bf16_wire},
      {"hybrid:K:full/offload/bf16", run_hybrid_offload_bf16},
      {"zero1", run_zero1},
      {"zero2", run_zero2},
      {"zero3", run_zero3},
      {"hybrid:K", run_hybrid},
      {"hybrid:K:full", run_hybrid_full},
      {"hybrid:K:full/bf16", run_hybrid_full_bf16},
      {"replicated", run_replicated},
#ifndef TESSERA_TEST_WITHOUT_QUEUES
      {"fsdp2/queued", run_fsdp2_queued},
      {"fsdp2:no-reshard/queued", run_fsdp2_no_reshard_queued},
      {"fsdp2:K/queued", run_fsdp2_group_queued},
      {"zero1/queued", run_zero1_queued},
      {"zero2/queued", run_zero2_queued},
      {"zero3/queued", run_zero3_queued},
      {"hybrid:K/queued", run_hybrid_queued},
      {"hybrid:K:full/queued", run_hybrid_full_queued},
      {"replicated/queued", run_replicated_queued},
      {"fsdp2/nccl", run_fsdp2_nccl},
      {"fsdp2:no-reshard/nccl", run_fsdp2_no_reshard_nccl},
      {"fsdp2:K/nccl", run_fsdp2_group_nccl},
      {"zero1/nccl", run_zero1_nccl},
      {"zero2/nccl", run_zero2_nccl},
      {"zero3/nccl", run_zero3_nccl},
      {"hybrid:K/nccl", run_hybrid_nccl},
      {"hybrid:K:full/nccl", run_hybrid_full_nccl},
      {"replicated/nccl", run_replicated_nccl},
      {"sharded/run-time/queued", run_run_time_sharded_queued},
      {"sharded/run-time/nccl", run_run_time_sharded_nccl},
#endif
  };
  if (stack == "watched") return run_watched(options);
  RunOptions chosen = options;
  const std::string_view strategy = strategy_of(stack);
  chosen.sharding = cli::parse_sharding(strategy);
  std::string rest(stack.substr(strategy.size()));
  constexpr std::string_view layout = "/layout=";
  if (rest.starts_with(layout)) {
    const std::size_t end = std::min(rest.find('/', layout.size()), rest.size());
    chosen.sharding.layout = cli::parse_layout(rest.substr(layout.size(), end - layout.size()));
    rest.erase(0, end);
  }
  const bool run_time = rest.starts_with("/run-time");
  const auto found =
      compiled.find((run_time ? placements_of(chosen.sharding) : cli::kind_name(chosen.sharding)) + rest);
  require<InputError>(found != compiled.end(), "no stack of the tests is called '", stack, "'");
  return found->second(chosen);
}

}  // namespace fsdp::test
