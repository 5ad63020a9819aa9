// SPDX-License-Identifier: Apache-2.0
/// @file
/// The program: parses the command line, selects a compiled stack, runs the sub-command.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/rendezvous.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/run/output_files.hpp>

#include "../fsdp/core/paths.hpp"
#include "cli/commands.hpp"
#include "cli/fit.hpp"
#include "cli/listed.hpp"
#include "cli/replay.hpp"
#include "cli/stack_choice.hpp"
#include "stacks/compiled_stack.hpp"
#include "stacks/planned_stack.hpp"

namespace fsdp::stacks {
#define FSDP_STACK(name) std::vector<CompiledStack> name();
#include <stacks.inc>
#undef FSDP_STACK
}  // namespace fsdp::stacks

namespace fsdp {
namespace {

const std::vector<stacks::CompiledStack>& compiled_stacks() {
  static const std::vector<stacks::CompiledStack> all = [] {
    std::vector<stacks::CompiledStack> list;
#define FSDP_STACK(name) std::ranges::copy(stacks::name(), std::back_inserter(list));
#include <stacks.inc>
#undef FSDP_STACK
    return list;
  }();
  return all;
}

using train::Bound;

/// Returns the distinct values of a member over the compiled stacks, in their order.
std::vector<std::string> distinct(std::string stacks::CompiledStack::*member) {
  std::vector<std::string> values;
  for (const stacks::CompiledStack& stack : compiled_stacks())
    if (std::ranges::find(values, stack.*member) == values.end()) values.push_back(stack.*member);
  return values;
}

cli::CompiledParts built_with() {
  return {.comms = distinct(&stacks::CompiledStack::comm), .precisions = distinct(&stacks::CompiledStack::precision)};
}

/// Returns the compiled stack that the flags select. Throws InputError if the program does not contain it.
const stacks::CompiledStack& find_stack(const cli::StackChoice& asked) {
  cli::require_built(asked, built_with());
  return *std::ranges::find_if(compiled_stacks(), [&](const stacks::CompiledStack& stack) {
    return stack.comm == cli::name_of_comm(asked.comm) && stack.precision == cli::precision_text(asked) &&
           stack.offload == asked.offload && stack.takes(asked.sharding);
  });
}

/// Whether an error may start MPI, to be compared with the errors of the other processes of mpirun's job.
bool may_join_mpi = true;

/// Ends with an error that occurred before the ranks of a job were connected, such as an error in a flag. Under mpirun
/// it joins the job, so that an error of all processes is printed once. Otherwise it rethrows the error.
int end_together(const std::exception_ptr& error) {
  const auto& stacks = compiled_stacks();
  const auto mpi = std::ranges::find(stacks, "mpi", &stacks::CompiledStack::comm);
  if (may_join_mpi && mpi != stacks.end() && comm::launched_by_mpi() && comm::launched_job().processes > 1)
    return mpi->on_ranks({}, [&](const comm::Ranks&) -> int { std::rethrow_exception(error); });
  std::rethrow_exception(error);
}

/// Replaces the path of a directory of checkpoints by its newest complete step, and prints the step's path.
void take_newest_step(std::string& model) {
  if (!folder_exists(model)) return;  // the error is reported when the model is read
  if (path_exists(std::filesystem::path(model) / "config.json") || !checkpoint::holds_any(model)) return;
  const bool speaks = comm::launched_job().rank == 0;
  const auto folder = checkpoint::model_folder(model, checkpoint::read_listing<cli::Listed>,
                                               speaks ? checkpoint::Warn(print_warning) : checkpoint::Warn());
  if (speaks) print_sentence(message("--model ", model, ": uses ", folder.string(), ", its newest checkpoint"));
  model = folder.string();
}

/// Returns advice on how to start several processes as one job.
std::string joined_by(bool nccl) {
  if (nccl) return "say --comm mpi, or start NCCL's ranks with torchrun's variables (RANK, WORLD_SIZE)";
  if (comm::launched_by_mpi()) return "leave --comm out, or say --comm mpi";
  if (comm::launched_by_torchrun()) return "say --comm nccl, or start them with mpirun";
  return "start them with mpirun, or with srun --mpi=pmix, and leave --comm out";
}

/// Selects the communicator: MPI if mpirun started this process and --comm is not given. Treats `self` as one thread.
/// `plans`: whether the command only describes a run, which any process may do.
void resolve_launch_options(cli::CommChoice& comm, train::LaunchOptions& launch, bool comm_is_given,
                            bool plans = false) {
  using Kind = cli::CommChoice::Kind;
  if (!comm_is_given && comm::launched_by_mpi()) comm.kind = Kind::mpi;
  may_join_mpi = comm.kind != Kind::nccl;  // NCCL's ranks report their own errors
  const bool one_job = comm.kind == Kind::mpi || (comm.kind == Kind::nccl && comm::launched_by_torchrun());
  if (!one_job && !plans)
    comm::require_one_process(message("--comm ", cli::to_text(comm)), joined_by(comm.kind == Kind::nccl));
  if (comm.kind == Kind::self) comm = {.kind = Kind::threads, .ranks = 1};
  launch.ranks = comm.ranks;
}

/// Determines a command's communicator and number of ranks, and returns the compiled stack that it selects.
template <class Command>
const stacks::CompiledStack& stack_for(const Bound<Command>& command, train::LaunchOptions& launch,
                                       bool plans = false) {
  resolve_launch_options(command->stack.comm, launch, command.flags.is_given("comm"), plans);
  return find_stack(command->stack);
}

/// Throws InputError if --comm implies a number of ranks other than that of a plan's cluster: threads:N does, and so
/// does a launcher that started several processes for mpi or nccl.
void require_ranks_of(const plan::Cluster& cluster, const cli::CommChoice& comm, const std::string& name) {
  const bool counts = comm.counts() || comm.kind == cli::CommChoice::Kind::self;
  const std::int64_t stated = counts ? comm.ranks : comm::launched_job().processes;
  require<InputError>(stated == cluster.ranks || (!counts && stated == 1), "--comm ", cli::to_text(comm),
                      counts ? " states " : " was launched with ", stated, stated == 1 ? " rank" : " ranks",
                      ", and the plan is of the ", cluster.ranks, " of --cluster ", name,
                      "; leave --comm out, or give --ranks ", stated);
}

struct Run {
  int operator()(const train::Help& help) const { return print_text(stdout, help.text), 0; }
  int operator()(const cli::Version&) const {
    return print_text(stdout, cli::version_text() + "stacks\n" + cli::text_of(built_with())), 0;
  }
  int operator()(const Bound<cli::Train>& command) const {
    train::TrainOptions& options = command->options;
    return stack_for(command, options.launch, options.dry_run || options.print_schedule).train(command);
  }
  int operator()(const Bound<cli::Plan>& command) const {
    const train::PlanOptions& plan = command->plan;
    train::TrainOptions& options = command->train.options;
    command.flags.require_ranges();
    const plan::Cluster cluster = train::read_cluster(*options.cluster, options.ranks);
    cli::CommChoice& comm = command->train.stack.comm;
    using Kind = cli::CommChoice::Kind;
    if (!command.flags.is_given("comm"))
      comm.kind = cluster.device == "cuda" ? Kind::nccl : cluster.nodes() > 1 ? Kind::mpi : Kind::threads;
    require<InputError>(comm.kind != Kind::threads || cluster.nodes() == 1,
                        "--comm threads has all ranks in one process, ", "and these are in ", cluster.nodes(),
                        " nodes; take --comm mpi");
    if (command.flags.is_given("comm")) require_ranks_of(cluster, comm, *options.cluster);
    resolve_launch_options(comm, options.launch, true, true);
    const auto estimate = [&](const cli::Train& train) {
      return stacks::estimate_step(command.flags, train, cluster, !plan.json && !command->fit);
    };
    const std::string missing = cli::missing_parts_text(command->train.stack, built_with());
    if (command->fit) return cli::fit(command, cluster, missing, estimate);
    const int status = train::print_estimate(options, plan, estimate(command->train));
    if (!plan.json && !missing.empty() && train::prints_plans())
      print_text(stdout, message("this program cannot run it: ", missing, "\n"));
    return status;
  }
  int operator()(const Bound<cli::Calibrate>& command) const {
    command.flags.require_ranges();
    resolve_launch_options(command->comm, command->launch, command.flags.is_given("comm"));
    train::require_unread("--out", command->out, command.flags.files());
    const cli::StackChoice any{.comm = command->comm};  // any stack with this communicator
    cli::require_built(any, {.comms = built_with().comms, .precisions = {cli::to_text(any.precision)}});
    return std::ranges::find(compiled_stacks(), cli::name_of_comm(any.comm), &stacks::CompiledStack::comm)
        ->calibrate(*command);
  }
  int operator()(const Bound<cli::Eval>& command) const {
    take_newest_step(command->options.model);
    return stack_for(command, command->options.launch).evaluate(command);
  }
  int operator()(const Bound<cli::Generate>& command) const {
    take_newest_step(command->options.model);
    const auto generate = stack_for(command, command->options.launch).generate;
    require<InputError>(generate != nullptr, "generate: this model's head has no logits, so that it writes no text");
    return generate(command);
  }
  int operator()(const Bound<cli::Chat>& command) const {
    take_newest_step(command->options.generate.model);
    const auto chat = stack_for(command, command->options.generate.launch).chat;
    require<InputError>(chat != nullptr, "chat: this model cannot continue a sequence");
    return chat(command);
  }
  template <class OnFiles>
  int operator()(const Bound<OnFiles>& command) const {
    may_join_mpi = false;  // every process runs the whole command, and may end differently
    return cli::run(*command);
  }
  int operator()(const Bound<cli::Replay>& bound) const {
    const cli::Replay& command = *bound;
    const bool by_mpi = comm::launched_by_mpi();
    std::vector<std::string> warnings;
    cli::RecordedRun run;
    try {
      run = cli::recorded_run(command, by_mpi, warnings);
    } catch (const InputError&) {
      if (comm::launched_job().rank == 0)
        for (const std::string& warning : warnings) print_warning(warning);
      throw;
    }
    run.warnings = std::move(warnings);
    resolve_launch_options(run.stack.comm, run.options->launch, command.comm.has_value());
    return find_stack(run.stack).replay(run);
  }
  int operator()(const cli::Stacks&) const {
    return print_text(stdout, "Compiled into this program, in any combination, with any --layout and --tiling:\n" +
                                  cli::text_of(built_with()) +
                                  "Policies of your own are a program of a few lines: see examples/01_trainer.\n" +
                                  cli::support_text()),
           0;
  }
};

}  // namespace
}  // namespace fsdp

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);  // a parent process may have ignored it; `tessera generate | head` must end
  return fsdp::train::run_program([&] {
    try {
      return std::visit(fsdp::Run{}, fsdp::cli::parse(argc, argv));
    } catch (const fsdp::Error&) {
      return fsdp::end_together(std::current_exception());
    }
  });
}
