// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/runners.hpp>

#include <algorithm>
#include <map>
#include <string>

#include <tessera/fsdp/core/error.hpp>

#include <support/stacks/run_time.hpp>

namespace fsdp::test {

namespace {

/// "fsdp2:2" of "fsdp2:2/bf16".
std::string_view strategy_of(std::string_view stack) { return stack.substr(0, stack.find('/')); }

}  // namespace

std::int64_t ranks_per_group(std::string_view stack) {
  return std::max<std::int64_t>(cli::parse_sharding(strategy_of(stack)).number, 1);
}

RunResults run(std::string_view stack, const RunOptions& options) {
  static const std::map<std::string, RunResults (*)(const RunOptions&)> compiled = {
#ifndef TESSERA_TEST_FEWER_STACKS
      {"fsdp2", run_fsdp2},
      {"fsdp2:no-reshard", run_fsdp2_no_reshard},
      {"fsdp2:K", run_fsdp2_group},
      {"zero1", run_zero1},
      {"zero2", run_zero2},
      {"zero3", run_zero3},
      {"hybrid:K", run_hybrid},
      {"hybrid:K:full", run_hybrid_full},
#endif
      {"fsdp2/owned", run_fsdp2_owned},
      {"fsdp2/bf16", run_fsdp2_bf16},
      {"fsdp2/offload", run_fsdp2_offload},
      {"fsdp2/bf16-wire", run_fsdp2_bf16_wire},
      {"hybrid:K:full/offload/bf16", run_hybrid_offload_bf16},
      {"hybrid:K:full/bf16", run_hybrid_full_bf16},
      {"replicated", run_replicated},
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
  if (rest == "/run-time") return threads_stacks(chosen);
#ifdef TESSERA_TEST_FEWER_STACKS
  if (rest.empty()) return threads_stacks(chosen);
#else
  if (rest == "/queued") return queued_stacks(chosen);
  if (rest == "/nccl") return nccl_stacks(chosen);
#endif
  const auto found = compiled.find(cli::kind_name(chosen.sharding) + rest);
  require<InputError>(found != compiled.end(), "no stack of the tests is called '", stack, "'");
  return found->second(chosen);
}

}  // namespace fsdp::test
