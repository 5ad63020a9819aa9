// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_budget.hpp>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {
namespace {

struct Found {
  std::int64_t budget = 0;                                        ///< the largest that fits; 0: none does
  std::int64_t least = std::numeric_limits<std::int64_t>::max();  ///< peak bytes of all budgets that were tried
};

Found search(std::int64_t memory, FunctionRef<std::int64_t(const tiling::RunTimeTiling&)> peak) {
  Found found;
  const auto peak_of = [&](const tiling::RunTimeTiling& tiling) {
    const std::int64_t bytes = peak(tiling);
    found.least = std::min(found.least, bytes);
    return bytes;
  };
  const auto budgeted = [&](std::int64_t bytes) -> std::optional<std::int64_t> {
    try {
      return peak_of(tiling::RunTimeTiling::budget(bytes));
    } catch (const InputError&) {
      return std::nullopt;  // the budget is too small; any other error would have been thrown by the untiled run
    }
  };
  if (peak_of(tiling::Untiled{}) <= memory) return {.budget = std::max<std::int64_t>(memory, 1), .least = found.least};
  std::int64_t low = 0, high = std::max<std::int64_t>(memory, 1);
  while (high - low > std::max<std::int64_t>(low / 256, 1)) {
    const std::int64_t middle = low + (high - low) / 2;
    const std::optional<std::int64_t> bytes = budgeted(middle);
    if (bytes && *bytes <= memory) found.budget = middle;
    (!bytes || *bytes <= memory ? low : high) = middle;
  }
  return found;
}

std::string bytes_in_words(std::int64_t bytes) { return message(bytes, " (", report::bytes_text(bytes), ")"); }

}  // namespace

std::int64_t largest_budget(std::int64_t memory, bool recomputes,
                            FunctionRef<std::int64_t(const tiling::RunTimeTiling&, bool recomputes)> peak) {
  const Found found = search(memory, [&](const tiling::RunTimeTiling& tiling) { return peak(tiling, recomputes); });
  if (found.budget > 0) return found.budget;
  const std::string begin = message("--tiling budget:auto: ", memory, " bytes (", report::bytes_text(memory),
                                    ") a rank hold no step of this model, however it is tiled");
  const std::string rest = "give more --memory, more ranks or shorter sequences";
  if (recomputes) throw InputError(message(begin, "; one takes ", bytes_in_words(found.least), "; ", rest));
  const Found other = search(memory, [&](const tiling::RunTimeTiling& tiling) { return peak(tiling, true); });
  if (other.budget > 0)
    throw InputError(message(begin, ", without --recompute; one takes ", bytes_in_words(found.least),
                             ". Add --recompute, with which one fits, or ", rest));
  throw InputError(message(begin, ", with --recompute too; one takes ",
                           bytes_in_words(std::min(found.least, other.least)), "; ", rest));
}

void print_budget(const tiling::RunTimeTiling& budget, std::int64_t memory) {
  print_text(stdout, message("--tiling budget:auto is ", budget.text(), ": what ", report::bytes_text(memory),
                             " a rank leave\n"));
}

}  // namespace fsdp::train
