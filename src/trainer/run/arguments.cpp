// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/arguments.hpp>

#include <algorithm>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {

void agree_on_instruction_set(const comm::Ranks& ranks) {
  std::string bf16;  // what selects how bf16 is multiplied
  for (const char* const name : {"TESSERA_BF16_MATMUL", "DNNL_MAX_CPU_ISA"})
    bf16 += message(name, " = ", environment(name), "\n");
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, bf16, "environment"),
                           "ranks were started with different environments", "start all ranks with the same");
  const std::vector<std::string> sets =
      comm::gather_texts(ranks, std::string(device::instruction_set()), "instruction sets");
  if (std::ranges::count(sets, sets.front()) == std::ssize(sets)) return;
  const std::string least(device::least_instruction_set(sets));
  device::limit_instruction_set(least);
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
