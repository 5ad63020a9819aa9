// SPDX-License-Identifier: Apache-2.0
/// @file
/// Ranks on unlike processors compute alike.
#pragma once

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <fsdp/device/cpu.hpp>
#include <fsdp/train/agreement.hpp>

namespace fsdp::train {

/// All ranks take the least of their instruction sets, before anything is computed; rank 0 says so where they differ.
/// Throws InputError where ranks were told otherwise how to multiply bf16.
template <class Comm>
void agree_on_instruction_set(Comm& communicator) {
  require_same_texts(communicator.monitor(), gather_texts(communicator, device::bf16_environment(), "environment"),
                     "ranks were started with different environments", "start all ranks with the same");
  const std::vector<std::string> sets =
      gather_texts(communicator, std::string(device::instruction_set()), "instruction sets");
  if (std::all_of(sets.begin(), sets.end(), [&](const std::string& set) { return set == sets.front(); })) return;
  const std::string least(device::least_instruction_set(sets));
  device::keep_to_instruction_set(least);
  if (communicator.rank() == 0)
    std::fprintf(stderr, "tessera: warning: the ranks' processors have other instruction sets; all use %s\n",
                 least.c_str());
}

}  // namespace fsdp::train
