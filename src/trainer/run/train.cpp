// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/train.hpp>

#include <tessera/trainer/flags/flag_values.hpp>

namespace fsdp::train {

std::string plan_text(const plan::Plan& step, const std::string& stack, const plan::Request& request) {
  const std::string whose =
      step.same_on_all_ranks ? "each rank" : message("rank ", step.rank, ", which takes the most");
  const int sharing = request.shape.ranks_per_sequence;
  const std::string table = report::memory_table(
      step.bytes, message(stack, ", ", request.ranks, request.ranks == 1 ? " rank, " : " ranks, ",
                          sharing == 1 ? "" : message(sharing, " share each sequence, "), request.sequences, " x ",
                          request.shape.sequence_length, " tokens a micro-batch: bytes of ", whose));
  return step.offloaded_bytes == 0 ? table
                                   : table + message("beside it, in host memory: ", step.offloaded_bytes, " bytes (",
                                                     report::bytes_text(step.offloaded_bytes), ")\n");
}

std::string parameters_text(std::int64_t all, std::int64_t trained) {
  if (trained == all) return {};
  return message("trains ", report::count_text(trained), " of ", report::count_text(all), " parameters\n");
}

std::string groups_text(std::span<const OptimizerGroup> groups, std::span<const Unit> units) {
  std::string text;
  for (const OptimizerGroup& group : groups) {
    const std::vector<Parameter> own = parameters_of(group, units);
    std::int64_t weights = 0;
    for (const Parameter& parameter : own) weights += parameter.shape.numel();
    text += message("group: ", to_text(group), " (", own.size(), own.size() == 1 ? " tensor, " : " tensors, ",
                    report::count_text(weights), weights == 1 ? " weight)\n" : " weights)\n");
  }
  return text;
}

template class Batches<data::TextSource>;

}  // namespace fsdp::train
