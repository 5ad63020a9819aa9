// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_memory.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <span>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/device/memory.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {
namespace {

constexpr int all = 100;

/// Returns the least number from 1 to `all` for which a condition is true; `all` + 1 if there is none.
int least_percents(FunctionRef<bool(int percents)> holds) {
  int least = 1, beyond = all + 1;  // the result is in [least, beyond]
  while (least < beyond) {
    const int middle = (least + beyond) / 2;
    if (holds(middle))
      beyond = middle;
    else
      least = middle + 1;
  }
  return least;
}

/// Returns the least share of block inputs in host memory, in whole percents, with which a step fits; empty if it does
/// not fit with all inputs there. If `fits` is true for a share, it must be true for all larger ones.
std::optional<double> least_share(FunctionRef<bool(double share)> fits) {
  const int percents = least_percents([&](int number) { return fits(number / double{all}); });
  return percents > all ? std::nullopt : std::optional(percents / double{all});
}

/// Returns the flags that `other` has and `now` does not have: "--recompute --offload inputs:0.25".
std::string flags_of(const UnitOptions& other, const UnitOptions& now, bool optimizer) {
  std::string text = other.recompute && !now.recompute ? "--recompute" : "";
  if (other.offload_inputs > now.offload_inputs)
    text += (text.empty() ? "--offload " : " --offload ") +
            to_text(OffloadFlag{.optimizer = optimizer, .inputs = other.offload_inputs});
  return text;
}

struct Found {
  std::int64_t budget = 0;                                        ///< the largest budget that fits; 0: none fits
  std::int64_t least = std::numeric_limits<std::int64_t>::max();  ///< least peak bytes of all budgets that were tried
};

Found search(std::int64_t memory, FunctionRef<std::int64_t(const tiling::RunTimeTiling&)> peak) {
  Found found;
  const auto fits = [&](const tiling::RunTimeTiling& tiling) {
    const std::int64_t bytes = peak(tiling);
    found.least = std::min(found.least, bytes);
    return bytes <= memory;
  };
  std::int64_t low = 0, high = std::max<std::int64_t>(memory, 1);
  if (fits(tiling::Untiled{})) low = found.budget = high;
  while (high - low > std::max<std::int64_t>(low / 256, 1)) {
    const std::int64_t middle = low + (high - low) / 2;
    try {
      const bool is_enough = fits(tiling::RunTimeTiling::budget(middle));
      if (is_enough) found.budget = middle;
      (is_enough ? low : high) = middle;
    } catch (const InputError&) {
      low = middle;  // the budget is too small; any other error would have been thrown by the untiled run
    }
  }
  return found;
}

std::string bytes_in_words(std::int64_t bytes) { return message(bytes, " (", report::bytes_text(bytes), ")"); }

}  // namespace

void check_memory(const TrainOptions& options, bool has_auto_budget, const std::string& tiling) {
  require<InputError>(!options.memory || has_auto_budget || options.dry_run, "--memory ", options.memory.value_or(""),
                      " belongs to --tiling budget:auto, or to budget=auto behind --sharding, or to --dry-run, not to ",
                      tiling);
}

std::int64_t given_memory(const TrainOptions& options, std::string_view device, const plan::UsedCommunicators& used) {
  const std::int64_t given = parse_bytes("memory", *options.memory);
  const std::int64_t runtime = plan::usual_cluster(device).runtime(used);
  require<InputError>(given > runtime, "--memory ", *options.memory, " is the memory of a rank, whose process takes ",
                      report::bytes_text(runtime), " besides tensors; give more");
  return given - runtime;
}

std::int64_t least_memory(const comm::Ranks& ranks, std::int64_t memory, const char* what) {
  ranks.reduce(std::span<std::int64_t>(&memory, 1), comm::Reduction::min, {what});
  return memory;
}

std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    std::optional<std::int64_t> memory, bool offloads_optimizer,
    FunctionRef<TakenBytes(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes) {
  const std::int64_t now = bytes(options, nullptr, ranks).device;
  std::string text = message("; the whole run takes ", report::bytes_text(now), " of each rank");
  std::string separator = ", and would take ";
  const auto offer = [&](const TrainOptions& other, const tiling::RunTimeTiling* other_tiling, int other_ranks,
                         const std::string& with) {
    TakenBytes then;
    try {
      then = bytes(other, other_tiling, other_ranks);
    } catch (const InputError&) {
      return;  // more ranks need more padding, for which the strategy's budget may be too small
    }
    if (then.device >= now) return;
    text += message(separator, report::bytes_text(then.device), " ", with);
    if (memory && other.units.offload_inputs > 0)
      text += message(" (", report::bytes_text(then.host), " of host memory)");
    separator = ", ";
  };

  TrainOptions recomputed = options;
  recomputed.units.recompute = true;
  const tiling::RunTimeTiling tokens = tiling::RunTimeTiling::tokens(1024);
  const bool tiles = tiling != nullptr && *tiling == tiling::RunTimeTiling{};
  if (tiles) offer(options, &tokens, ranks, "with --tiling tokens:1024");
  if (!options.units.recompute) offer(recomputed, nullptr, ranks, "with --recompute");
  if (tiles && !options.units.recompute) offer(recomputed, &tokens, ranks, "with both");
  if (memory) {
    const tiling::RunTimeTiling* const cut = tiles ? &tokens : nullptr;
    const double share = options.units.offload_inputs;
    const auto fits = [&](double inputs) {
      recomputed.units.offload_inputs = inputs;
      return inputs >= share && bytes(recomputed, cut, ranks).device <= *memory;
    };
    if (!fits(share)) {
      const std::optional<double> least = least_share(fits);
      recomputed.units.offload_inputs = least.value_or(1);
      const std::string left = report::bytes_text(std::max<std::int64_t>(*memory, 0));
      const std::string over = least ? "" : message("(still more than ", left, ") ");
      offer(recomputed, cut, ranks,
            message(over, "with ", tiles ? "--tiling tokens:1024 " : "",
                    flags_of(recomputed.units, options.units, offloads_optimizer)));
    }
  }
  const bool halves = pieces == 0 && step_size(options, ranks, pieces).sequences % 2 == 0;
  if (halves) {
    TrainOptions halved = options;
    halved.grad_accum *= 2;
    offer(halved, nullptr, ranks, message("with --grad-accum ", halved.grad_accum));
  }
  if (halves || pieces > 0) offer(options, nullptr, 2 * ranks, message("on ", 2 * ranks, " ranks"));
  return text + " (--dry-run tells of other strategies)";
}

std::string memory_line(std::int64_t memory, const NeededMemory& needed, const std::string& advice) {
  return message("memory: this step ", needed.bytes <= memory ? "fits" : "does not fit", " into ",
                 report::bytes_text(memory), " per rank; it needs ", report::bytes_text(needed.bytes), ", ",
                 report::bytes_text(needed.runtime), " of them besides tensors", needed.bytes <= memory ? "" : advice);
}

std::string does_not_fit(std::int64_t memory, std::int64_t needed) {
  return message("--memory: this step does not fit: a rank needs ", report::bytes_text(needed), " and has ",
                 report::bytes_text(memory), ", ", report::bytes_text(needed - memory),
                 " too little; tessera plan --fit --cluster NAME searches for flags that fit");
}

void require_host_memory(double share, std::int64_t memory, FunctionRef<std::int64_t(double share)> host) {
  const std::int64_t needed = host(share);
  if (needed <= memory) return;
  const auto fits = [&](double other) { return other < share && host(other) <= memory; };
  const int less = least_percents([&](int number) { return number == all || fits((all - number) / double{all}); });
  const double fitting = (all - less) / double{all};  // 0 if no share fits
  const std::string would_do = fitting > 0 ? message(to_text(OffloadFlag{.inputs = fitting}), " would do, or give ")
                                           : std::string("no share would do; give ");
  throw InputError(message("--offload ", to_text(OffloadFlag{.inputs = share}), ": a rank takes ", needed, " bytes (",
                           report::bytes_text(needed), ") of its machine's memory, which has ", memory, " (",
                           report::bytes_text(memory), ") for it; ", would_do,
                           "fewer ranks a machine or shorter sequences"));
}

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

std::int64_t memory_left_for_weights(std::int64_t memory, const plan::Plan& step, const UnitOptions& units,
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
