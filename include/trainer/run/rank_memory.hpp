// SPDX-License-Identifier: Apache-2.0
/// @file
/// The memory that a rank may use on its device and on its machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/plan/available_memory.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/trainer/flags/byte_count.hpp>
#include <tessera/trainer/flags/options.hpp>

namespace fsdp::train {

/// Throws InputError if --memory is given, unless the tiling or the strategy has a budget that is `auto`
/// (`has_auto_budget`), or the run is a dry run.
void check_memory(const TrainOptions& options, bool has_auto_budget, const std::string& tiling);

/// Returns a rank's share of host memory: nine tenths of the free memory, divided by the number of ranks on its
/// machine.
inline std::int64_t host_memory_of_rank(int ranks) {
  return plan::available_memory() / 10 * 9 / comm::ranks_on_this_machine(ranks);
}

/// Returns the part of a rank's --memory on a device ("cpu") that a plan with this memory leaves for tensors
/// (plan::usual_cluster). Throws InputError if the rest of the process needs all of it.
std::int64_t given_memory(const TrainOptions& options, std::string_view device);

/// Returns the bytes that one rank's tensors may use: given_memory if --memory is given. Otherwise nine tenths of the
/// free memory of its device or machine, divided by the number of ranks that share it.
template <class Comm>
std::int64_t memory_of_rank(const TrainOptions& options, int ranks) {
  if (options.memory) return given_memory(options, Comm::Device::name);
  if constexpr (requires { requires Comm::device_for_each_rank; })
    return Comm::Device::free_bytes() / 10 * 9;
  else if constexpr (requires { Comm::Device::free_bytes(); })
    return Comm::Device::free_bytes() / 10 * 9 / comm::ranks_on_this_machine(ranks);
  else
    return host_memory_of_rank(ranks);
}

/// Returns the least `memory` of all ranks. Collective. `what`: its name in errors.
std::int64_t least_memory(const comm::Ranks& ranks, std::int64_t memory, const char* what);

}  // namespace fsdp::train
