// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/validation.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/sharding/sequence.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/report/report.hpp>

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

OpenData open_eval_data(const comm::Ranks& ranks, const EvalOptions& options, std::int64_t vocabulary) {
  OpenData data = open_data(ranks, options, {.model_folder = options.model, .vocabulary = vocabulary}, 0);
  require<InputError>(data.tokens.names.weights.empty(),
                      "eval: --data has weights, which are for training; leave them out");
  comm::agree_on_opened(ranks, read_together(ranks, options.launch.disk_deadline_seconds, "--data",
                                             [&] { return message("data = ", data.source.identity(), "\n"); }));
  if (const std::string losses = data.source.losses(); ranks.rank() == 0 && !losses.empty())
    print_sentence("data: " + losses);
  return data;
}

void evaluate(Inference& inference, const EvalOptions& options, const data::TextSource& source, int pieces) {
  const comm::Ranks& ranks = inference.ranks();
  const std::int64_t groups = groups_of(options.sequence, ranks.size());
  const std::int64_t sequences = std::max<std::int64_t>(1, options.batch_size / (pieces > 0 ? pieces : groups));
  inference.begin({.sequences = sequences,
                   .sequence_length = options.seq_len,
                   .ranks_per_sequence = options.sequence.ranks,
                   .middle_parts = options.sequence.parts,
                   .threads = static_cast<int>(options.launch.threads)},
                  Purpose::evaluate);
  const MeanLoss mean = mean_loss(
      ranks, [&](std::span<const std::int64_t> samples) { return inference.evaluate(samples); }, sequences,
      data::evenly_spread(0, source.training(), options.windows), [](std::int64_t, std::int64_t) {},
      options.sequence.ranks);
  require<InputError>(std::isfinite(mean.loss), "the mean loss is ", std::abs(mean.loss),
                      "; look at the weights of --model ", options.model,
                      options.adapter.empty() ? "" : ", and of --adapter ", options.adapter);
  if (ranks.rank() == 0) print_text(stdout, report::mean_loss_json(mean.loss, mean.tokens) + "\n");
}

}  // namespace fsdp::train
