// SPDX-License-Identifier: Apache-2.0
/// @file
/// `--tiling budget:auto`: the largest budget with which a rank's dry run stays within its memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/policy_text.hpp>
#include <fsdp/optim/run_time.hpp>
#include <fsdp/plan/available_memory.hpp>
#include <fsdp/plan/dry_run.hpp>
#include <fsdp/report/report.hpp>
#include <fsdp/train/byte_count.hpp>
#include <fsdp/train/launch.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::train {

/// Bytes that one rank may take: --memory, or nine tenths of what the machine, or its device, has left, shared by those
/// who use it.
template <class Comm>
std::int64_t memory_of_rank(const TrainOptions& options, int ranks) {
  if (!options.memory.empty()) return parse_bytes("memory", options.memory);
  if constexpr (requires { Comm::device_for_each_rank; })
    return Comm::Device::free_bytes() / 10 * 9;
  else if constexpr (requires { Comm::Device::free_bytes(); })
    return Comm::Device::free_bytes() / 10 * 9 / ranks_on_this_machine(ranks);
  else
    return plan::available_memory() / 10 * 9 / ranks_on_this_machine(ranks);
}

/// The largest budget whose peak is at most `memory`, to one part in 256. A rank plans before it allocates, so this is
/// what everything else leaves. Throws InputError with what the smallest budget would take.
template <class Model, class Optimizer = optim::RunTime>
std::int64_t largest_budget(const Model& model, typename Model::Stack::Sharding sharding, const plan::Request& request,
                            std::int64_t memory, const Optimizer& optimizer = {}) {
  const auto peak = [&](const tiling::RunTime& tiling) {
    return plan::dry_run(model, sharding, tiling, request, optimizer).peak_bytes();
  };
  if (peak(tiling::Untiled{}) <= memory) return std::max<std::int64_t>(memory, 1);
  const auto budgeted = [&](std::int64_t bytes) -> std::optional<std::int64_t> {
    try {
      return peak(tiling::RunTime::budget(bytes));
    } catch (const InputError&) {
      return std::nullopt;  // below the smallest that does: every other reason was found out untiled
    }
  };
  std::int64_t low = 0, high = std::max<std::int64_t>(memory, 1), best = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  while (high - low > std::max<std::int64_t>(low / 256, 1)) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::optional<std::int64_t> bytes = budgeted(middle);
    if (bytes) least = std::min(least, *bytes);
    if (bytes && *bytes <= memory) best = middle;
    (!bytes || *bytes <= memory ? low : high) = middle;
  }
  require<InputError>(best > 0, "--tiling budget:auto: ", memory, " bytes (", report::bytes_text(memory),
                      ") a rank hold no step of this model, however it is tiled",
                      least < std::numeric_limits<std::int64_t>::max()
                          ? message("; one takes ", least, " (", report::bytes_text(least), ")")
                          : "",
                      "; give more --memory, more ranks or shorter sequences");
  return best;
}

/// Whether a tiling policy waits for the bytes that memory leaves.
template <class Tiling>
bool asks_for_memory(const Tiling& tiling) {
  if constexpr (std::is_same_v<Tiling, tiling::RunTime>)
    return tiling.asks_for_memory();
  else
    return false;
}

/// A policy that waits for its bytes, with what `memory` leaves; another as it is. Prints the budget where `speaks`.
template <class Model, class Optimizer>
typename Model::Stack::Tiling settled(const typename Model::Stack::Tiling& tiling, const Model& model,
                                      const typename Model::Stack::Sharding& sharding, const plan::Request& request,
                                      const Optimizer& optimizer, std::int64_t memory, bool speaks) {
  if constexpr (std::is_same_v<typename Model::Stack::Tiling, tiling::RunTime>)
    if (tiling.asks_for_memory()) {
      const auto budget = tiling::RunTime::budget(largest_budget(model, sharding, request, memory, optimizer));
      if (speaks)
        std::printf("--tiling budget:auto is %s: what %s a rank leave\n", policy_text(budget).c_str(),
                    report::bytes_text(memory).c_str());
      return budget;
    }
  return tiling;
}

/// The same on all ranks: that of the rank with least memory.
template <class Model, class Comm, class Optimizer>
typename Model::Stack::Tiling settled(Comm& communicator, const typename Model::Stack::Tiling& tiling,
                                      const typename Model::Stack::Sharding& sharding, const TrainOptions& options,
                                      const Optimizer& optimizer) {
  if (!asks_for_memory(tiling)) return tiling;
  std::int64_t memory = memory_of_rank<Comm>(options, communicator.size());
  comm::reduce(communicator, std::span<std::int64_t>(&memory, 1), comm::Reduction::min, {"memory"});
  return settled(tiling, model_of<Model>(options), sharding, plan_request(options, communicator.size(), optimizer),
                 optimizer, memory, communicator.rank() == 0);
}

}  // namespace fsdp::train
