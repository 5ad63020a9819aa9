// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera replay` on one compiled stack.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/engine_of.hpp>
#include <tessera/trainer/run/feed.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/tokenized_data.hpp>

namespace fsdp::train {

/// `tessera replay` on one stack. `recorded` and `after`: see replay_step. `options`: those of the recorded run, with
/// its data, a checkpoint's folder as --model, and the present launch options; `flags` are bound to them. Rank 0 prints
/// the warnings. Returns the exit status.
template <class Model, class Optimizer>
int replay(const ReplayRequest& request, const TrainOptions& options, const FlagSet& flags, const RunRecord& recorded,
           const std::optional<checkpoint::TrainerState>& after, std::span<const std::string> warnings,
           const ShardingOf<Model>& sharding, const TilingOf<Model>& tiling, const Optimizer& optimizer) {
  using Comm = typename Model::Stack::Comm;
  validate_constants(optimizer);
  validate(options.launch);
  return launch<Comm>(options.launch, [&](Comm& communicator) -> int {
    if (communicator.rank() == 0)
      for (const std::string& warning : warnings) print_warning(warning);
    agree_on_run(communicator, flags, policy_texts<typename Model::Stack>(sharding, tiling),
                 given_text(options.model) + optimizer_lines(optimizer) + request_text(request));
    validate(request, options);
    require_ranks(recorded, communicator.size());
    const StepSize size = validate(flags, options, communicator.size(), sharding::facts_of(sharding).pieces);
    const double limit = options.launch.disk_deadline_seconds;
    read_together(communicator, limit, "--digests", [&] {
      if (communicator.rank() == 0) require_apart(request, options);
    });
    const Model model = read_together(communicator, limit, "a checkpoint", [&] { return model_of<Model>(options); });
    const OpenData data = open_data(
        communicator, options,
        {.model_folder = options.model.name, .made = request.folder + "/tokens", .vocabulary = vocabulary_of(model)},
        options.validation_fraction);
    RunWatch watch(options, communicator.rank());
    EngineOf<Model, data::TextSource, Optimizer> engine(communicator, options, model, data.source, sharding, tiling,
                                                        optimizer, watch, size, EngineUse::replays);
    return replay_step(engine, request, options, watch, recorded, after);
  });
}

}  // namespace fsdp::train
