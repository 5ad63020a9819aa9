// SPDX-License-Identifier: Apache-2.0
/// @file
/// A whole program from one stack: `int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>>(argc,
/// argv); }`
///
/// The communicator's header (comm/threads.hpp, comm/mpi.hpp, comm/self.hpp) is included by the program itself. For a
/// loop of one's own see train/training.hpp.
#pragma once

#include <cstdio>
#include <exception>
#include <type_traits>
#include <variant>

#include <fsdp/core/policy_text.hpp>
#include <fsdp/models/llama.hpp>
#include <fsdp/module/stack.hpp>
#include <fsdp/train/commands.hpp>
#include <fsdp/train/flags.hpp>

namespace fsdp {
namespace detail {

/// The value of a policy that a program does not pass.
template <class Policy>
Policy left_out() {
  static_assert(std::is_default_constructible_v<Policy>,
                "fsdp: train_main was not given a policy's value, and its type has no default constructor, so the "
                "numbers are not known; pass it: train_main<Model>(argc, argv, sharding, tiling)");
  if constexpr (std::is_default_constructible_v<Policy>) return Policy{};
}

}  // namespace detail

/// `tessera train` for one stack, whose policies are these values: its flags without the sub-command and without those
/// that name a policy, which are refused. Returns the exit status: 0, or 2 after one line on stderr.
template <class Model>
int train_main(int argc, const char* const* argv, typename Model::Stack::Sharding sharding,
               typename Model::Stack::Tiling tiling) {
  using Stack = typename Model::Stack;
  static_assert(train::check_launch<typename Stack::Comm>());
  try {
    const auto command = train::parse_train(argc, argv,
                                            {.sharding = policy_text(sharding),
                                             .precision = policy_text<typename Stack::Precision>(),
                                             .tiling = policy_text(tiling),
                                             .comm = policy_text<typename Stack::Comm>(),
                                             .starts_ranks = train::starts_ranks<typename Stack::Comm>});
    if (const auto* help = std::get_if<train::Help>(&command))
      return std::fputs(help->text.c_str(), stdout) < 0 ? 2 : 0;
    return train::train<Model>(std::get<train::TrainOptions>(command), sharding, tiling);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 2;
  }
}

template <class Model>
int train_main(int argc, const char* const* argv, typename Model::Stack::Sharding sharding) {
  return train_main<Model>(argc, argv, sharding, detail::left_out<typename Model::Stack::Tiling>());
}

template <class Model>
int train_main(int argc, const char* const* argv) {
  return train_main<Model>(argc, argv, detail::left_out<typename Model::Stack::Sharding>());
}

}  // namespace fsdp
