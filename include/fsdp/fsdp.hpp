// SPDX-License-Identifier: Apache-2.0
/// @file
/// A whole program from one stack: `int main(int argc, char** argv) { return fsdp::train_main<fsdp::Llama<Stack>>(argc,
/// argv); }`
///
/// The communicator's header (comm/threads.hpp, comm/mpi.hpp, comm/self.hpp) is included by the program itself.
#pragma once

#include <cstdio>
#include <exception>
#include <variant>

#include <fsdp/models/llama.hpp>
#include <fsdp/module/stack.hpp>
#include <fsdp/train/commands.hpp>

namespace fsdp {

/// `tessera train` for one stack: its flags without the sub-command; flags that ask for another stack are refused.
/// Returns the exit status: 0, or 2 after one line on stderr.
template <class Model>
int train_main(int argc, const char* const* argv) {
  try {
    const auto command = cli::parse_train(argc, argv);
    if (const auto* help = std::get_if<cli::Help>(&command)) return std::fputs(help->text.c_str(), stdout) < 0 ? 2 : 0;
    train::TrainOptions options = std::get<train::TrainOptions>(command);
    const train::StackChoice fixed = train::choice_of<typename Model::Stack>(options.stack);
    train::refuse_other_stack(options, fixed);
    options.stack = fixed;
    return train::train<Model>(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 2;
  }
}

}  // namespace fsdp
