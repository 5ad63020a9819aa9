// SPDX-License-Identifier: Apache-2.0
/// @file
/// The step that a dry run of `train` and a plan describe: of what model, for what request, with budgets that are
/// `auto` settled.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/plan/plan.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/flags/sequence_flag.hpp>
#include <tessera/trainer/generate/samples.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/dry_runs.hpp>
#include <tessera/trainer/run/run_checkpoints.hpp>
#include <tessera/trainer/run/step_plan.hpp>

namespace fsdp::train {

/// Returns whether --model's folder has no weights at all, and its adapters are planned without. The first process of a
/// job prints so, once.
bool plans_without_weights(const TrainOptions& options);

/// Makes the model of a run, and checks its source of weights before anything slow: throws as starts_from_folder does.
/// Returns the model, and whether its weights are read from --model's folder. `plans`: nothing is trained, so that
/// adapters need no weights next to them; prints so where there are none.
template <class Model>
std::pair<Model, bool> begun_model(const TrainOptions& options, bool plans = false) {
  Model model = model_of<Model>(options);
  bool adapters = false;
  if constexpr (HasAdapters<typename Model::Config>) adapters = model.config().adapters().on();
  if (plans && adapters && is_folder<typename Model::Config>(options.model)) adapters = !plans_without_weights(options);
  const bool stored =
      !options.resume && starts_from_folder(options, is_folder<typename Model::Config>(options.model), adapters);
  return {std::move(model), stored};
}

/// A step that nobody runs.
template <class Model>
struct PlannedStep {
  Model model;
  plan::Request request;
  ShardingOf<Model> sharding;
  TilingOf<Model> tiling;
};

/// Returns the step of these options on `ranks` ranks, after the checks that a run makes before it plans. Refuses a
/// folder whose weights the run would refuse. `memory()`: bytes of a rank for budgets that are `auto`, asked for where
/// there are any; `speaks`: whether this process prints what they become. Without `cuts` a tiling stays as it is.
template <class Model, class Optimizer, class Memory>
PlannedStep<Model> planned_step(const TrainOptions& options, const FlagSet& flags, int ranks,
                                const ShardingOf<Model>& asked, const TilingOf<Model>& tiling,
                                const Optimizer& optimizer, Memory memory, bool speaks, bool cuts = true,
                                std::int64_t (*scratch_bytes_for)(int ranks) = nullptr) {
  auto [model, stored] = begun_model<Model>(options, true);
  if (stored) (void)checkpoint::open_model<Model>(options.model.name, {}, options.model.adapter);
  require_samples(options, writes_text<Model>);
  require_stack_shards(options.sequence, Model::Stack::Sequence::shards);
  validate(flags, options, ranks, sharding::facts_of(asked).pieces);
  plan::Request request = plan_request(options, ranks, asked, optimizer);
  request.scratch_bytes_for = scratch_bytes_for;
  Policies<Model> policies{asked, tiling};
  if (policies.ask_for_memory()) policies = settled(policies, model, request, optimizer, memory(), speaks, cuts);
  return {.model = std::move(model), .request = request, .sharding = policies.sharding, .tiling = policies.tiling};
}

}  // namespace fsdp::train
