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

/// Runs eval, generate or chat on a model's folder.
template <class Model, auto run, class Command>
int on_folder(const cli::Bound<Command>& command) {
  return run(command->options, command.flags,
             cli::sharding_of<typename Model::Stack::Sharding>(command->stack.sharding),
             cli::known_tiling(command->stack.tiling));
}

template <class Model>
CompiledStack compiled_stack() {
  using Stack = typename Model::Stack;
  using Sharding = typename Stack::Sharding;
  using Comm = typename Stack::Comm;
  static_assert(std::is_same_v<typename Stack::Tiling, tiling::RunTimeTiling>);
  CompiledStack stack{
      .takes = cli::takes<Sharding>,
      .offload = offloads_optimizer_of<Sharding> ? cli::OffloadChoice::optimizer : cli::OffloadChoice::none,
      .comm = policy_text<Comm>(),
      .precision = policy_text<typename Stack::Precision>(),
      .train =
          [](const cli::Bound<cli::Train>& command) {
            const cli::StackChoice& stack = command->stack;
            return train::train<Model>(command->options, command.flags, cli::sharding_of<Sharding>(stack.sharding),
                                       stack.tiling, resolve(command->optimizer));
          },
      .replay =
          [](const cli::RecordedRun& run) {
            return train::replay<Model>(run.request, *run.options, run.options.flags, run.record, run.after,
                                        run.warnings, cli::sharding_of<Sharding>(run.stack.sharding), run.stack.tiling,
                                        resolve(run.optimizer));
          },
      .on_ranks =
          [](const train::LaunchOptions& options, const std::function<int(const comm::Ranks&)>& f) {
            return train::launch<Comm>(options, [&](Comm& communicator) { return f(comm::Ranks(communicator)); });
          },
      .calibrate = cli::calibrate<Comm>,
      .evaluate = on_folder<Model, train::evaluate<Model>>,
  };
  if constexpr (nn::GeneratingHead<typename Model::Head, typename Model::Local>)
    stack.generate = on_folder<Model, train::generate<Model>>;
  if constexpr (Executor<Model>::continues) stack.chat = on_folder<Model, train::chat<Model>>;
  return stack;
}

}  // namespace fsdp::stacks
