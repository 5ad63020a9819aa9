// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera train` on one compiled stack.
#pragma once

#include <concepts>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/models/model.hpp>
#include <tessera/fsdp/module/units.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/fsdp/verification/verification.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/engine_of.hpp>
#include <tessera/trainer/run/feed.hpp>
#include <tessera/trainer/run/first_weights.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/planned_step.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/step_memory.hpp>
#include <tessera/trainer/run/tokenized_data.hpp>
#include <tessera/trainer/run/training_run.hpp>

namespace fsdp::train {

/// Returns the dry run's memory table of a step.
std::string plan_text(const plan::Plan& step, const std::string& stack, const plan::Request& request);
/// Returns a line on how many of a model's parameters are trained, unless all are, and one for each parameter group:
/// the values that it sets, and the number of its tensors and weights.
std::string parameters_text(std::int64_t all, std::int64_t trained, std::span<const OptimizerGroup> groups = {},
                            std::span<const Unit> units = {});

/// Prints the planned memory of a step per rank (--dry-run), its schedule (--print-schedule), or both. Does not
/// allocate this memory, and starts no ranks. Refuses a folder whose weights the run would refuse. Returns the exit
/// status: ExitStatus::bad_input, after a sentence on stderr, if the step does not fit into --memory.
template <class Model, class Optimizer>
int describe(TrainOptions options, const FlagSet& flags, const ShardingOf<Model>& asked, const TilingOf<Model>& tiling,
             const Optimizer& optimizer) {
  using Stack = typename Model::Stack;
  int status = comm::ExitStatus::done;
  const bool speaks = starts_ranks<typename Stack::Comm> || comm::launched_job().rank == 0;
  const auto print = [&](const std::string& text) {
    if (speaks) print_text(stdout, text);
  };
  const int ranks =
      options.ranks > 0 ? static_cast<int>(options.ranks) : planned_ranks<typename Stack::Comm>(options.launch);
  options.launch.threads = comm::planned_threads(options.launch.threads, ranks);
  const auto memory = [&](const plan::UsedCommunicators& used) {
    return memory_of_rank<typename Stack::Comm>(options, ranks, used);
  };
  const StepSize size = checked_size<Model>(options, flags, ranks, asked, tiling);
  PlannedStep<Model> step{.request = most_loaded_request(size, ranks, optimizer),
                          .model = initial_model<Model>(options, true),
                          .sharding = asked,
                          .tiling = tiling};
  const bool asks = step.asks_for_memory();
  resolve_budgets(step, optimizer, memory, speaks, options.dry_run);
  if (options.print_schedule) {
    const plan::PlannedSchedule planned = plan::planned_schedule(step.model, step.sharding, step.request);
    print(report::schedule_text(planned.tasks, planned.names));
    if (!options.dry_run && !planned.residency.holds.empty()) print(report::residency_text(planned.residency) + "\n");
  }
  if (options.dry_run) {
    const plan::Plan planned =
        plan::dry_run(step.model, step.sharding, step.tiling, step.request, optimizer, WatchedSteps());
    if (const int pieces = sharding::facts_of(step.sharding).pieces; pieces > 0)
      print(report::rounds_text(pieces, ranks, options.sequence.ranks) + "\n");
    print(parameters_text(parameter_count(step.model), trained_count(step.model), options.units.groups,
                          units_of(step.model)));
    print(plan::tiling_text(step.model, step.tiling, step.request));
    if (!planned.residency.holds.empty()) print(report::residency_text(planned.residency) + "\n");
    print(plan_text(planned, Stack::name(step.sharding), step.request));
    if (options.memory && !asks) {
      const plan::Cluster usual = plan::usual_cluster(Stack::Device::name);
      const NeededMemory needed{.bytes = plan::needed_bytes(planned, usual),
                                .runtime = usual.runtime(planned.communicators)};
      const std::int64_t given = parse_bytes("memory", *options.memory);
      std::string advice;
      if (needed.bytes > given) {
        advice = memory_advice(options, step, optimizer, [&](const auto&) { return given - needed.runtime; });
        status = comm::ExitStatus::bad_input;
      }
      print(memory_line(given, needed, advice) + "\n");
      if (speaks && status != comm::ExitStatus::done) print_sentence(does_not_fit(given, needed.bytes));
    }
  }
  return status;
}

/// `tessera train` on one stack. `flags`: the flags that are bound to the options. Returns the exit status.
template <class Model, class Optimizer>
int train(const TrainOptions& given, const FlagSet& flags, const ShardingOf<Model>& asked,
          const TilingOf<Model>& tiling, const Optimizer& optimizer) {
  static_assert(std::same_as<typename Model::Batch, TokenBatch>,
                "fsdp: train_main trains on text, and this model's Batch is no TokenBatch; use train::Trainer<Model, "
                "Source> with a source of its batches, or train::Training in a loop of your own");
  using Comm = typename Model::Stack::Comm;
  validate_constants(optimizer);
  validate(given.launch);
  if (given.dry_run || given.print_schedule) return describe<Model>(given, flags, asked, tiling, optimizer);
  require_apart(given, flags.files());
  return launch<Comm>(given.launch, [&](Comm& communicator) -> int {
    agree_on_run(communicator, flags, policy_texts<typename Model::Stack>(asked, tiling),
                 given_text(given.model) + optimizer_lines(optimizer));
    StepSize size = checked_size<Model>(given, flags, communicator.size(), asked, tiling);
    CheckpointDir dir(communicator, given);
    const TrainOptions options = with_resumed_threads<Model>(communicator, given, asked);
    size.threads = static_cast<int>(options.launch.threads);
    PlannedStep<Model> step{.request = most_loaded_request(size, communicator.size(), optimizer),
                            .model = read_together(communicator, options.launch.disk_deadline_seconds, "--model",
                                                   [&] { return initial_model<Model>(options); }),
                            .sharding = asked,
                            .tiling = tiling};
    if constexpr (HasAdapters<typename Model::Config>)
      require<InputError>(
          options.cuda_graphs != CudaGraphs::on || step.model.config().adapters().dropout == 0,
          "--cuda-graphs replays one step, and --lora-dropout makes steps differ; leave one of them out");
    const auto memory = [&](const plan::UsedCommunicators& used) {
      return memory_of_rank<Comm>(options, communicator.size(), used);
    };
    resolve_budgets(
        step, optimizer, [&](const auto& used) { return least_memory(communicator, memory(used), "memory"); },
        communicator.rank() == 0);
    require_host_memory(communicator, step, optimizer);
    const OpenData data =
        open_data(communicator, options,
                  {.model_folder = is_folder<typename Model::Config>(options.model) ? options.model.name : "",
                   .cache = options.checkpoint_dir ? *options.checkpoint_dir + "/tokens" : "",
                   .vocabulary = vocabulary_of(step.model)},
                  options.validation_fraction);
    try {
      RunWatch watch(options, communicator.rank());
      EngineOf<Model, data::TextSource, Optimizer> engine(communicator, options, step.model, data.source, step.sharding,
                                                          step.tiling, optimizer, watch, size);
      return TrainingRun(engine, options, watch, std::move(dir)).run();
    } catch (const MemoryError& error) {
      throw MemoryError(error.what() + memory_advice(options, step, optimizer, memory));
    }
  });
}

}  // namespace fsdp::train
