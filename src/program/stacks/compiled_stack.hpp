// SPDX-License-Identifier: Apache-2.0
/// @file
/// An entry of the program's table of compiled stacks: the flags that select it, and its commands.
#pragma once

#include <functional>
#include <string>
#include <type_traits>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/nn/module.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/trainer/run/inference_commands.hpp>
#include <tessera/trainer/run/replay.hpp>
#include <tessera/trainer/run/train.hpp>

#include "../calibrate/calibrate.hpp"
#include "../cli/commands.hpp"
#include "../cli/replay.hpp"
#include "../cli/stack_choice.hpp"

namespace fsdp::stacks {

/// A compiled stack. Its strategy type may represent several kinds of --sharding.
struct CompiledStack {
  bool (*takes)(const cli::ShardingChoice&) = nullptr;
  cli::OffloadChoice offload = cli::OffloadChoice::none;
  std::string comm;
  std::string precision;
  int (*train)(const cli::Bound<cli::Train>&) = nullptr;
  int (*replay)(const cli::RecordedRun&) = nullptr;
  /// Calls f on all ranks and returns their exit status. An error that all of a launcher's ranks have is printed once.
  int (*on_ranks)(const train::LaunchOptions&, const std::function<int(const comm::Ranks&)>& f) = nullptr;
  int (*calibrate)(const cli::Calibrate&) = nullptr;  ///< calibrates the device and its communicator
  int (*evaluate)(const cli::Bound<cli::Eval>&) = nullptr;
  int (*generate)(const cli::Bound<cli::Generate>&) = nullptr;  ///< null if the model's head does not compute logits
  int (*chat)(const cli::Bound<cli::Chat>&) = nullptr;          ///< null if the model cannot continue a sequence
};

/// The commands of one stack.
template <class Model>
struct Commands {
  using Stack = typename Model::Stack;

  static auto sharding(const cli::StackChoice& choice) {
    return cli::sharding_of<typename Stack::Sharding>(choice.sharding);
  }
  static int train(const cli::Bound<cli::Train>& command) {
    return train::train<Model>(command->options, command.flags, sharding(command->stack), command->stack.tiling,
                               resolve(command->optimizer));
  }
  static int replay(const cli::RecordedRun& run) {
    return train::replay<Model>(run.request, *run.options, run.options.flags, run.record, run.after, run.warnings,
                                sharding(run.stack), run.stack.tiling, resolve(run.optimizer));
  }
  static int on_ranks(const train::LaunchOptions& options, const std::function<int(const comm::Ranks&)>& f) {
    using Comm = typename Stack::Comm;
    return train::launch<Comm>(options, [&](Comm& communicator) { return f(comm::Ranks(communicator)); });
  }
  /// Runs eval, generate or chat on a model's folder.
  template <auto run, class Command>
  static int on_folder(const cli::Bound<Command>& command) {
    return run(command->options, command.flags, sharding(command->stack), cli::known_tiling(command->stack.tiling));
  }
};

template <class Model>
CompiledStack compiled_stack() {
  using Stack = typename Model::Stack;
  static_assert(std::is_same_v<typename Stack::Tiling, tiling::RunTimeTiling>);
  CompiledStack stack{
      .takes = cli::takes<typename Stack::Sharding>,
      .offload =
          offloads_optimizer_of<typename Stack::Sharding> ? cli::OffloadChoice::optimizer : cli::OffloadChoice::none,
      .comm = policy_text<typename Stack::Comm>(),
      .precision = policy_text<typename Stack::Precision>(),
      .train = Commands<Model>::train,
      .replay = Commands<Model>::replay,
      .on_ranks = Commands<Model>::on_ranks,
      .calibrate = calibrate::calibrate<typename Stack::Comm>,
      .evaluate = Commands<Model>::template on_folder<train::evaluate<Model>>,
  };
  if constexpr (nn::GeneratingHead<typename Model::Head, typename Model::Local>)
    stack.generate = Commands<Model>::template on_folder<train::generate<Model>>;
  if constexpr (Executor<Model>::continues) stack.chat = Commands<Model>::template on_folder<train::chat<Model>>;
  return stack;
}

}  // namespace fsdp::stacks
