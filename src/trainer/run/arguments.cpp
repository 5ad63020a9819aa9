// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/arguments.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {
namespace {

/// Returns lines "NAME = value" of the environment variables that select how bf16 is multiplied.
std::string bf16_environment() {
  std::string text;
  for (const char* const name : {"TESSERA_BF16_MATMUL", "DNNL_MAX_CPU_ISA"})
    text += message(name, " = ", environment(name), "\n");
  return text;
}

}  // namespace

void agree_on_instruction_set(const comm::Ranks& ranks) {
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, bf16_environment(), "environment"),
                           "ranks were started with different environments", "start all ranks with the same");
  const std::vector<std::string> sets =
      comm::gather_texts(ranks, std::string(device::instruction_set()), "instruction sets");
  if (std::all_of(sets.begin(), sets.end(), [&](const std::string& set) { return set == sets.front(); })) return;
  const std::string least(device::least_instruction_set(sets));
  device::keep_to_instruction_set(least);
  if (ranks.rank() == 0) print_warning("the ranks' processors have different instruction sets; all use " + least);
}

void agree_on_run(const comm::Ranks& ranks, const FlagSet& flags, const PolicyTexts& policies,
                  const std::string& more) {
  comm::agree_on_arguments(
      ranks, message(write_toml(flags, Effect::chosen), "sharding = \"", policies.sharding, "\"\nprecision = \"",
                     policies.precision, "\"\ntiling = \"", policies.tiling, "\"\n", more));
  agree_on_instruction_set(ranks);
}

}  // namespace fsdp::train
