// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/evaluate.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/windows.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {

OpenData open_eval_data(const comm::Ranks& ranks, const EvalOptions& options, std::int64_t vocabulary) {
  OpenData data = open_data(ranks, options, {.model_folder = options.model, .vocabulary = vocabulary}, 0);
  require<InputError>(data.tokens.names().weights.empty(),
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
