// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/rank_memory.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/trainer/report/report.hpp>

namespace fsdp::train {

void check_memory(const TrainOptions& options, bool has_auto_budget, const std::string& tiling) {
  require<InputError>(!options.memory || has_auto_budget || options.dry_run, "--memory ", options.memory.value_or(""),
                      " belongs to --tiling budget:auto, or to budget=auto behind --sharding, or to --dry-run, not to ",
                      tiling);
}

std::int64_t given_memory(const TrainOptions& options, std::string_view device) {
  const std::int64_t given = parse_bytes("memory", *options.memory);
  const std::int64_t runtime = plan::usual_cluster(device).runtime(options.sequence.ranks > 1);
  require<InputError>(given > runtime, "--memory ", *options.memory, " is the memory of a rank, whose process takes ",
                      report::bytes_text(runtime), " besides tensors; give more");
  return given - runtime;
}

std::int64_t least_memory(const comm::Ranks& ranks, std::int64_t memory, const char* what) {
  ranks.reduce(std::span<std::int64_t>(&memory, 1), comm::Reduction::min, {what});
  return memory;
}

}  // namespace fsdp::train
