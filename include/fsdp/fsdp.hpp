// SPDX-License-Identifier: Apache-2.0
/// @file
/// A whole program from one stack: `int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>>(argc,
/// argv); }`
///
/// The communicator's header (comm/threads.hpp, comm/mpi.hpp, comm/self.hpp) is included by the program itself. For a
/// loop of one's own see train/training.hpp.
#pragma once

#include <type_traits>
#include <utility>

#include <fsdp/core/policy_text.hpp>
#include <fsdp/models/llama.hpp>
#include <fsdp/module/stack.hpp>
#include <fsdp/optim/optimizer.hpp>
#include <fsdp/optim/run_time.hpp>
#include <fsdp/train/commands.hpp>
#include <fsdp/train/flags.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/optimizer_choice.hpp>

namespace fsdp {
namespace detail {

/// The value of a policy that a program does not pass.
template <class Policy>
Policy left_out() {
  static_assert(std::is_default_constructible_v<Policy>,
                "fsdp: train_main was not given a policy's value, and its type has no default constructor, so the "
                "numbers are not known; pass it: train_main<Model>(argc, argv, sharding, tiling, optimizer)");
  if constexpr (std::is_default_constructible_v<Policy>) return Policy{};
}

}  // namespace detail

/// `tessera train` for one stack, whose policies are these values: its flags without the sub-command and without those
/// that name a policy, which are refused. optim::RunTime is chosen by --optimizer; of another optimizer the constants
/// alone are flags. Returns the exit status (comm::ExitStatus), not 0 after one line on stderr.
template <class Model, class Optimizer = optim::RunTime>
int train_main(int argc, const char* const* argv, typename Model::Stack::Sharding sharding,
               typename Model::Stack::Tiling tiling, Optimizer optimizer) {
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
       .starts_ranks = train::starts_ranks<typename Stack::Comm>},
      [&](train::FlagSet& flags, train::ModelChoice& model) {
        train::bind_model<typename Model::Config>(flags, model);
        chosen.bind(flags);
      },
      [&](const train::TrainOptions& options) {
        return train::train<Model>(options, sharding, tiling, chosen.resolve());
      });
}

/// The same; the optimizer is default-constructed.
template <class Model, class Optimizer = optim::RunTime>
int train_main(int argc, const char* const* argv, typename Model::Stack::Sharding sharding,
               typename Model::Stack::Tiling tiling) {
  return train_main<Model, Optimizer>(argc, argv, sharding, tiling, detail::left_out<Optimizer>());
}

/// The same; the tiling is default-constructed.
template <class Model, class Optimizer = optim::RunTime>
int train_main(int argc, const char* const* argv, typename Model::Stack::Sharding sharding) {
  return train_main<Model, Optimizer>(argc, argv, sharding, detail::left_out<typename Model::Stack::Tiling>());
}

/// The same; both policies are default-constructed.
template <class Model, class Optimizer = optim::RunTime>
int train_main(int argc, const char* const* argv) {
  return train_main<Model, Optimizer>(argc, argv, detail::left_out<typename Model::Stack::Sharding>());
}

}  // namespace fsdp
