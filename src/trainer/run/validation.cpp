// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/validation.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>

namespace fsdp::train {

double detail::sum_of_batches(std::span<const double> losses, std::int64_t groups, std::int64_t batches,
                              std::int64_t sharing) {
  const std::int64_t rounds = std::ssize(losses) / (groups * sharing);
  double sum = 0;
  for (std::int64_t n = 0; n < batches; ++n)
    for (std::int64_t member = 0; member < sharing; ++member)
      sum += losses[static_cast<std::size_t>((n % groups * sharing + member) * rounds + n / groups)];
  return sum;
}

MeanLoss mean_loss(const comm::Ranks& ranks, FunctionRef<HeldOutBatch(std::span<const std::int64_t>)> evaluate,
                   std::int64_t sequences, std::span<const std::int64_t> samples,
                   FunctionRef<void(std::int64_t seen, std::int64_t all)> seen, int ranks_per_sequence) {
  std::vector<double> losses;  // losses of this rank's batches
  std::int64_t tokens = 0;
  const auto count = std::ssize(samples);
  const SequenceGroup group = sequence_group(ranks.rank(), ranks.size(), ranks_per_sequence);
  for (std::int64_t begin = 0; begin < count; begin += sequences * group.count) {
    const std::int64_t from = std::min(count, begin + sequences * group.index);
    const std::int64_t to = std::min(count, from + sequences);
    const HeldOutBatch batch =
        evaluate(samples.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(to - from)));
    if (batch.stop != 0) return {.stop = batch.stop};
    tokens += batch.targets;
    losses.push_back(batch.loss);
    seen(std::min(count, begin + sequences * group.count), count);
  }
  if (tokens == 0) return {};
  std::vector<double> all(losses.size() * static_cast<std::size_t>(ranks.size()));  // [ranks, rounds]
  ranks.gather_bytes(std::as_bytes(std::span(losses)), std::as_writable_bytes(std::span(all)), {"validation loss"});
  const double sum = detail::sum_of_batches(all, group.count, ceil_divide(count, sequences), group.size);
  return {.loss = sum / static_cast<double>(tokens), .tokens = tokens};
}

}  // namespace fsdp::train
