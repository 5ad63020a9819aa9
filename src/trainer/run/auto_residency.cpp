// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_residency.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

std::int64_t left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units,
                              StackMemory stack) {
  const std::int64_t gathered = step.bytes[static_cast<std::size_t>(device::MemoryKind::gathered)];
  const std::int64_t rest = taken_by(step, stack.one).device - gathered;
  UnitOptions other = units;
  other.recompute = true;
  if (!stack.one) other.offload_inputs = 1;
  const std::string flags = flags_of(other, units, stack.offloads_optimizer);
  require<InputError>(rest <= memory, "budget=auto behind --sharding: ", memory, " bytes (", report::bytes_text(memory),
                      ") a rank hold no step of this model, which takes ", rest, " (", report::bytes_text(rest),
                      ") besides gathered weights; give more --memory, more ranks or shorter sequences",
                      flags.empty() ? "" : ", or keep less with " + flags);
  return std::max<std::int64_t>(memory - rest, 1);
}

void print_sharding_budget(const std::string& sharding, std::int64_t memory) {
  print_text(stdout,
             message("--sharding budget=auto is ", sharding, ": what ", report::bytes_text(memory), " a rank leave\n"));
}

}  // namespace fsdp::train
