// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/memory_advice.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/flags/offload_flag.hpp>
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

}  // namespace

std::optional<double> least_share(FunctionRef<bool(double share)> fits) {
  const int percents = least_percents([&](int number) { return fits(number / double{all}); });
  return percents > all ? std::nullopt : std::optional(percents / double{all});
}

double largest_share(FunctionRef<bool(double share)> fits) {
  const int kept = least_percents([&](int number) { return number == all || fits((all - number) / double{all}); });
  return (all - kept) / double{all};
}

std::string flags_of(const UnitOptions& other, const UnitOptions& now, bool optimizer) {
  std::string text = other.recompute && !now.recompute ? "--recompute" : "";
  if (other.offload_inputs > now.offload_inputs)
    text += (text.empty() ? "--offload " : " --offload ") +
            to_text(OffloadFlag{.optimizer = optimizer, .inputs = other.offload_inputs});
  return text;
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
      const std::string over = least ? "" : message("(still more than ", report::bytes_text(*memory), ") ");
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
  const double fitting = largest_share([&](double other) { return other < share && host(other) <= memory; });
  const std::string would_do = fitting > 0 ? message(to_text(OffloadFlag{.inputs = fitting}), " would do, or give ")
                                           : std::string("no share would do; give ");
  throw InputError(message("--offload ", to_text(OffloadFlag{.inputs = share}), ": a rank takes ", needed, " bytes (",
                           report::bytes_text(needed), ") of its machine's memory, which has ", memory, " (",
                           report::bytes_text(memory), ") for it; ", would_do,
                           "fewer ranks a machine or shorter sequences"));
}

}  // namespace fsdp::train
