// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long a run's step takes, measured by a few steps of random tokens that leave nothing behind.
///
/// It builds what the run would build, for the same sizes, and runs the same steps; it reads no data and writes no
/// file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/device/host_copy.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/run/step_timing.hpp>
#include <tessera/trainer/run/train.hpp>

namespace fsdp::train {

/// Times a step on the ranks that `options.launch` starts or joins. `flags`: those that are bound to the options that
/// the user gave, of which `options` may differ in how a step is computed. Rank 0's process, and every other process of
/// a launcher, gets the result in `timed`. Returns the exit status; in a launcher's job another one than 0 means that
/// the error has been printed.
template <class Model, class Optimizer>
int time_step(const TrainOptions& options, const FlagSet& flags, const ShardingOf<Model>& asked,
              const TilingOf<Model>& tiling, const Optimizer& optimizer, TimedStep& timed) {
  using Comm = typename Model::Stack::Comm;
  using Device = typename Comm::Device;
  validate_constants(optimizer);
  const auto on_rank = [&](Comm& communicator) {
    const comm::Ranks ranks(communicator);
    const int pieces = sharding::facts_of(asked).pieces;
    require_stack_shards(options.sequence, Model::Stack::Sequence::shards);
    validate(flags, options, ranks.size(), pieces);
    const Model model = read_together(ranks, options.launch.disk_deadline_seconds, "--model",
                                      [&] { return begun_model<Model>(options).first; });
    const StepSize size = required_step_size(options, ranks.size(), pieces, writes_text<Model>);
    const plan::Request request = plan_request(options, ranks.size(), asked, optimizer);
    const bool asks = asks_for_memory(tiling) || weights_ask_for_memory(asked);
    const std::int64_t bytes = asks ? least_memory(communicator, options) : 0;
    const ShardingOf<Model> sharding = settled_sharding(asked, tiling, model, request, optimizer, bytes, false);
    const TilingOf<Model> cut = settled(tiling, model, sharding, request, optimizer, bytes, false);
    require_host_memory<Model>(communicator, options, sharding, cut, optimizer);

    std::optional<Training<Model, Optimizer>> training;
    const auto build = [&] {
      training.emplace(communicator, model, size, sharding, cut,
                       typename Training<Model, Optimizer>::Options{
                           .optimizer = optimizer,
                           .rules = {.clip = options.clip, .skips_overflow = loss_scale_of(options).has_value()},
                           .graphs = options.cuda_graphs});
    };
    // A thread that throws ends the waiting of the others; processes have to be told.
    std::string failed;
    if constexpr (starts_ranks<Comm>)
      build();
    else
      failed = memory_that_lacks(ranks, build);
    if (!failed.empty()) {
      timed.failed = failed;
      return;
    }
    training->initialize(options.seed);
    const SequenceGroup group = training->module().sequence_group();
    const RandomBatches batches(size.sequences, size.sequence_length, vocabulary_of(model),
                                training->module().own_micro_batches(), static_cast<std::uint64_t>(group.index),
                                device::host_memory<Device>);
    const auto loss_scale = loss_scale_of(options);
    const device::StepInputs inputs{.lr = 0, .loss_scale = loss_scale ? loss_scale->scale() : 1};
    const double seconds = median_seconds(ranks, {.warm_ups = options.cuda_graphs ? 2 : 1}, [&] {
      training->counts().start([&] { return batches.counts(group.member, group.size); });
      const auto targets = static_cast<double>(training->counts().finish().valid_targets);
      training->queue(batches.micro_batches(), static_cast<float>(inputs.loss_scale / targets), inputs, true);
      (void)training->optimizer().control().decision();  // waits for the device
      if (auto* const digests = training->executor().watch().steps()) (void)digests->collect();
    });
    if (!starts_ranks<Comm> || ranks.rank() == 0) timed.seconds = seconds;
  };
  try {
    return launch<Comm>(options.launch, on_rank);
  } catch (const MemoryError& error) {
    timed.failed = error.what();
    return 0;
  }
}

}  // namespace fsdp::train
