// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/auto_budget.hpp>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>

#include <fsdp/core/error.hpp>
#include <fsdp/report/report.hpp>

namespace fsdp::train {

std::int64_t largest_budget(std::int64_t memory, FunctionRef<std::int64_t(const tiling::RunTime&)> peak) {
  if (peak(tiling::Untiled{}) <= memory) return std::max<std::int64_t>(memory, 1);
  const auto budgeted = [&](std::int64_t bytes) -> std::optional<std::int64_t> {
    try {
      return peak(tiling::RunTime::budget(bytes));
    } catch (const InputError&) {
      return std::nullopt;  // the budget is too small; any other error would have been thrown by the untiled run
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

void print_budget(const tiling::RunTime& budget, std::int64_t memory) {
  std::printf("--tiling budget:auto is %s: what %s a rank leave\n", budget.text().c_str(),
              report::bytes_text(memory).c_str());
}

}  // namespace fsdp::train
