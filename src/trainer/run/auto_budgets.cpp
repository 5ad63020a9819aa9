// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/auto_budgets.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {
namespace {

struct Found {
  std::int64_t budget = 0;                                        ///< the largest budget that fits; 0: none fits
  std::int64_t least = std::numeric_limits<std::int64_t>::max();  ///< least peak bytes of all budgets that were tried
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

std::int64_t largest_budget(std::int64_t memory, const UnitOptions& units, StackMemory stack,
                            FunctionRef<TakenBytes(const tiling::RunTimeTiling&, const UnitOptions&)> taken) {
  const auto found_with = [&](const UnitOptions& options) {
    return search(memory, [&](const tiling::RunTimeTiling& tiling) { return taken(tiling, options).device; });
  };
  const Found found = found_with(units);
  if (found.budget > 0) return found.budget;
  const std::string begin = message("--tiling budget:auto: ", memory, " bytes (", report::bytes_text(memory),
                                    ") a rank hold no step of this model, however it is tiled");
  const std::string rest = "give more --memory, more ranks or shorter sequences";
  UnitOptions other = units;
  other.recompute = true;
  const Found recomputed = units.recompute ? found : found_with(other);
  if (recomputed.budget > 0)
    throw InputError(message(begin, ", without --recompute; one takes ", bytes_in_words(found.least),
                             ". Add --recompute, with which one fits, or ", rest));
  const std::string now = message(begin, units.recompute ? "" : ", with --recompute too", "; one takes ",
                                  bytes_in_words(std::min(found.least, recomputed.least)));
  Found offloaded;
  const auto fits = [&](double inputs) {
    other.offload_inputs = inputs;
    const Found tried = inputs > units.offload_inputs ? found_with(other) : Found{};
    if (tried.budget > 0) offloaded = tried;
    return tried.budget > 0;
  };
  const std::optional<double> share = stack.one ? std::nullopt : least_share(fits);
  if (!share) throw InputError(message(now, "; ", rest));
  other.offload_inputs = *share;
  throw InputError(message(now, ". Add ", flags_of(other, units, stack.offloads_optimizer),
                           ", with which one fits and ",
                           bytes_in_words(taken(tiling::RunTimeTiling::budget(offloaded.budget), other).host),
                           " are in host memory, or ", rest));
}

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

void print_budget(const char* flag, const std::string& policy, std::int64_t memory) {
  print_text(stdout, message(flag, " is ", policy, ": what ", report::bytes_text(memory), " a rank leave\n"));
}

}  // namespace fsdp::train
