// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program: reads the command line, picks a compiled stack, runs the sub-command.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <variant>
#include <vector>

#include <comm/launch.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/nearest.hpp>
#include <fsdp/train/compiled_stack.hpp>
#include <fsdp/train/flags.hpp>

namespace fsdp::stacks {
#define FSDP_STACK(name, sharding, comm, precision) train::CompiledStack name();
#include <stacks.inc>
#undef FSDP_STACK
}  // namespace fsdp::stacks

namespace fsdp {
namespace {

std::vector<train::CompiledStack> compiled_stacks() {
  std::vector<train::CompiledStack> list;
#define FSDP_STACK(name, sharding, comm, precision) list.push_back(stacks::name());
#include <stacks.inc>
#undef FSDP_STACK
  return list;
}

std::string kind_of(const std::string& name) { return name.substr(0, name.find(':')); }

/// The compiled stack that was asked for. Throws InputError with those that there are and the way to compile another.
train::CompiledStack find_stack(const train::StackChoice& asked) {
  const std::string sharding = train::name_of(asked.sharding);
  const std::string comm = kind_of(train::name_of(asked.comm));
  const std::string precision = train::name_of(asked.precision);
  std::string known;
  for (const train::CompiledStack& stack : compiled_stacks()) {
    if (sharding == stack.sharding && comm == stack.comm && precision == stack.precision) return stack;
    known += message("\n  --sharding ", stack.sharding, " --comm ", stack.comm, " --precision ", stack.precision);
  }
  throw InputError(message("this program was compiled without the stack ", sharding, " / ", comm, " / ", precision,
                           ". It has:", known, "\nAnother is compiled by these lines:\n",
                           "  #include <comm/threads.hpp>\n  #include <fsdp/fsdp.hpp>\n",
                           "  using Stack = fsdp::Stack<fsdp::Zero3, fsdp::comm::Threads<>, fsdp::Bf16Mixed, "
                           "fsdp::tiling::RunTime>;\n",
                           "  int main(int argc, char** argv) {\n",
                           "    return fsdp::train_main<fsdp::Llama<Stack>>(argc, argv); }"));
}

/// A process that mpirun started is a rank of MPI unless it is told otherwise.
template <class Options>
Options launched(Options options) {
  const bool given = std::find(options.given.begin(), options.given.end(), "comm") != options.given.end();
  if (!given && comm::launched_by_mpi()) options.stack.comm.kind = train::CommChoice::Kind::mpi;
  return options;
}

struct Run {
  int operator()(const cli::Help& help) const { return std::fputs(help.text.c_str(), stdout) < 0 ? 2 : 0; }
  int operator()(const train::TrainOptions& options) const {
    const auto resolved = launched(options);
    return find_stack(resolved.stack).train(resolved);
  }
  int operator()(const train::EvalOptions& options) const {
    const auto resolved = launched(options);
    return find_stack(resolved.stack).evaluate(resolved);
  }
  int operator()(const train::GenerateOptions& options) const {
    const auto resolved = launched(options);
    return find_stack(resolved.stack).generate(resolved);
  }
  int operator()(const train::BenchOptions&) const { throw InputError("bench: coming"); }
};

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  try {
    return std::visit(fsdp::Run{}, fsdp::cli::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return 2;
  }
}
