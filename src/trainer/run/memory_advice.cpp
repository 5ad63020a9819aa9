// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/memory_advice.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

std::string memory_advice(
    const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks, int pieces,
    FunctionRef<std::int64_t(const TrainOptions& options, const tiling::RunTimeTiling* tiling, int ranks)> bytes) {
  const std::int64_t now = bytes(options, nullptr, ranks);
  std::string text = message("; the whole run takes ", report::bytes_text(now), " of each rank");
  std::string separator = ", and would take ";
  const auto offer = [&](const TrainOptions& other, const tiling::RunTimeTiling* other_tiling, int other_ranks,
                         const std::string& with) {
    std::int64_t then = now;
    try {
      then = bytes(other, other_tiling, other_ranks);
    } catch (const InputError&) {
      return;  // more ranks pad more, for which the strategy's budget may be too small
    }
    if (then >= now) return;
    text += message(separator, report::bytes_text(then), " ", with);
    separator = ", ";
  };

  TrainOptions recomputed = options;
  recomputed.units.recompute = true;
  const tiling::RunTimeTiling tokens = tiling::RunTimeTiling::tokens(1024);
  const bool tiles = tiling != nullptr && *tiling == tiling::RunTimeTiling{};
  if (tiles) offer(options, &tokens, ranks, "with --tiling tokens:1024");
  if (!options.units.recompute) offer(recomputed, nullptr, ranks, "with --recompute");
  if (tiles && !options.units.recompute) offer(recomputed, &tokens, ranks, "with both");
  const bool halves = pieces == 0 && step_size(options, ranks, pieces).sequences % 2 == 0;
  if (halves) {
    TrainOptions halved = options;
    halved.grad_accum *= 2;
    offer(halved, nullptr, ranks, message("with --grad-accum ", halved.grad_accum));
  }
  if (halves || pieces > 0) offer(options, nullptr, 2 * ranks, message("on ", 2 * ranks, " ranks"));
  return text + " (--dry-run tells of other strategies)";
}

}  // namespace fsdp::train
