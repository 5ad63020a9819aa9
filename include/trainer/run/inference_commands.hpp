// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-commands eval, generate and chat on one compiled stack.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/sharding/strategy.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/generate/model_folder.hpp>
#include <tessera/trainer/run/arguments.hpp>
#include <tessera/trainer/run/generate.hpp>
#include <tessera/trainer/run/inference_of.hpp>
#include <tessera/trainer/run/validation.hpp>

namespace fsdp::train {

/// Returns the config of --model, with the adapters of --adapter if given. Collective; throws InputError on all ranks
/// unless all read the same config.
template <class Config>
Config agreed_config(const comm::Ranks& ranks, const LaunchOptions& launch, const std::string& folder,
                     const std::string& adapter) {
  const Config config = read_together(ranks, launch.disk_deadline_seconds, "--model",
                                      [&] { return read_config<Config>(folder, adapter); });
  comm::agree_on_opened(ranks, config.write());
  return config;
}

/// Creates the inference of a model from the config.json of --model, with the adapters of --adapter if given.
/// Collective; throws InputError on all ranks unless all have the same flags and read the same config.
template <class Model, class Options>
InferenceOf<Model> agreed_inference(typename Model::Stack::Comm& communicator, const Options& options,
                                    const FlagSet& flags, const ShardingOf<Model>& sharding,
                                    const TilingOf<Model>& tiling) {
  agree_on_run(communicator, flags, policy_texts<typename Model::Stack>(sharding, tiling));
  const auto config =
      agreed_config<typename Model::Config>(communicator, options.launch, options.model, options.adapter);
  return InferenceOf<Model>(communicator, options.launch, Model(config, {.precision = options.precision}),
                            options.model, options.adapter, sharding, tiling);
}

/// `tessera eval`. `flags`: the flags that are bound to the options. Returns the exit status.
template <class Model>
int evaluate(const EvalOptions& options, const FlagSet& flags, const ShardingOf<Model>& sharding,
             const TilingOf<Model>& tiling) {
  using Comm = typename Model::Stack::Comm;
  validate(flags, options);
  require_stack_shards(options.sequence, Model::Stack::Sequence::shards);
  return launch<Comm>(options.launch, [&](Comm& communicator) {
    (void)groups_of(options.sequence, communicator.size());  // throws if the ranks cannot be divided into groups
    InferenceOf<Model> inference = agreed_inference<Model>(communicator, options, flags, sharding, tiling);
    require_positions(inference.config(), options.seq_len, options.model);
    const OpenData data = open_eval_data(communicator, options, inference.vocabulary());
    inference.read(data.source);
    evaluate(inference, options, data.source, sharding::facts_of(sharding).pieces);
  });
}

/// `tessera generate`. `flags`: bound to the options; the model's folder sets some. Returns the exit status.
template <class Model>
int generate(GenerateOptions& options, const FlagSet& flags, const ShardingOf<Model>& sharding,
             const TilingOf<Model>& tiling) {
  static_assert(
      nn::GeneratingHead<typename Model::Head, typename Model::Local>,
      "fsdp: this model's head has no logits, so that it cannot generate; give it logits (tessera/fsdp/nn/module.hpp)");
  using Comm = typename Model::Stack::Comm;
  const PromptInput input = read_prompt_input(options, flags);
  return launch<Comm>(options.launch, [&](Comm& communicator) {
    InferenceOf<Model> inference = agreed_inference<Model>(communicator, options, flags, sharding, tiling);
    generate(inference, options, input);
  });
}

/// `tessera chat`. Parameters and result: see `generate`.
template <class Model>
int chat(ChatOptions& options, const FlagSet& flags, const ShardingOf<Model>& sharding, const TilingOf<Model>& tiling) {
  static_assert(Executor<Model>::continues,
                "fsdp: this model's blocks cannot continue a sequence, so that it cannot chat; give them `extend` "
                "(tessera/fsdp/nn/module.hpp), or its head logits");
  using Comm = typename Model::Stack::Comm;
  validate_sampling(flags, options.generate);
  const std::string set_by_file = apply_generation_config(flags, options.generate);
  return launch<Comm>(options.generate.launch, [&](Comm& communicator) {
    InferenceOf<Model> inference = agreed_inference<Model>(communicator, options.generate, flags, sharding, tiling);
    chat(inference, options, set_by_file);
  });
}

}  // namespace fsdp::train
