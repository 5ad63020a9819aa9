// SPDX-License-Identifier: Apache-2.0
/// @file
/// The header of a whole training program:
/// `int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv); }`
///
/// Include the communicator's header (tessera/comm/threads.hpp, tessera/comm/mpi.hpp, tessera/comm/self.hpp) yourself.
/// To write your own training loop, see tessera/fsdp/training/training.hpp.
#pragma once

#include <tessera/fsdp/core/language.hpp>  // before all others

#include <type_traits>
#include <utility>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/stack.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/flags/model_choice.hpp>
#include <tessera/trainer/flags/optimizer_choice.hpp>
#include <tessera/trainer/run/train.hpp>

namespace fsdp {
namespace detail {

/// Default-constructs a policy or optimizer that the program did not pass to train_main.
template <class Policy>
Policy left_out() {
  static_assert(std::is_default_constructible_v<Policy>,
                "fsdp: train_main was not given a policy's value, and its type has no default constructor, so the "
                "numbers are not known; pass it: train_main<Model>(argc, argv, sharding, tiling, optimizer)");
  if constexpr (std::is_default_constructible_v<Policy>) return Policy{};
}

}  // namespace detail

/// Runs `tessera train` for one stack with these policies. Accepts the same flags, without the sub-command; flags that
/// choose a policy are refused. If Optimizer is optim::RunTimeOptimizer, --optimizer chooses the optimizer; any other
/// optimizer has flags for its constants only. `sequence`: default of --sequence, the number of ranks that share each
/// sequence; a stack with Ulysses accepts the flag. Returns the exit status (comm::ExitStatus); an error prints one
/// line on stderr.
template <class Model, class Optimizer = optim::RunTimeOptimizer>
int train_main(int argc, const char* const* argv,
               typename Model::Stack::Sharding sharding = detail::left_out<typename Model::Stack::Sharding>(),
               typename Model::Stack::Tiling tiling = detail::left_out<typename Model::Stack::Tiling>(),
               Optimizer optimizer = detail::left_out<Optimizer>(),
               const typename Model::Stack::Sequence& sequence = {}) {
  using Stack = typename Model::Stack;
  static_assert(train::check_launch<typename Stack::Comm>());
  static_assert(optim::check_optimizer<Optimizer>());
  train::ChosenOptimizer<Optimizer> chosen{std::move(optimizer)};
  return train::run_trainer(
      argc, argv,
      {.sharding = policy_text(sharding),
       .precision = policy_text<typename Stack::Precision>(),
       .tiling = policy_text(tiling),
       .comm = policy_text<typename Stack::Comm>(),
       .sequence = {.ranks = sequence.ranks_per_sequence(), .parts = sequence.middle_parts()},
       .starts_ranks = train::starts_ranks<typename Stack::Comm>,
       .offloads_optimizer = offloads_optimizer_of<typename Stack::Sharding>},
      [&](train::FlagSet& flags, train::ModelChoice& model) {
        train::bind_model<typename Model::Config>(flags, model);
        chosen.bind(flags);
      },
      [&](const train::Bound<train::TrainOptions>& options) {
        return train::train<Model>(*options, options.flags, sharding, tiling, chosen.resolve());
      });
}

}  // namespace fsdp
