// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_residency.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <numeric>

#include <tessera/comm/launch/print.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

std::int64_t left_for_weights(std::int64_t memory, const device::BytesByKind& step) {
  const std::int64_t peak = std::accumulate(step.begin(), step.end(), std::int64_t{0});
  const std::int64_t gathered = step[static_cast<std::size_t>(device::MemoryKind::gathered)];
  const std::int64_t rest = peak - gathered;
  require<InputError>(
      rest <= memory, "budget=auto behind --sharding: ", memory, " bytes (", report::bytes_text(memory),
      ") a rank hold no step of this model, which takes ", rest, " (", report::bytes_text(rest),
      ") besides gathered weights; give more --memory, more ranks or shorter sequences, or keep less with "
      "--recompute and --offload inputs");
  return std::max<std::int64_t>(memory - rest, 1);
}

void print_sharding_budget(const std::string& sharding, std::int64_t memory) {
  print_text(stdout,
             message("--sharding budget=auto is ", sharding, ": what ", report::bytes_text(memory), " a rank leave\n"));
}

}  // namespace fsdp::train
