// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera_bench NAME [OPTIONS]`: the measurements that bench/README.md describes, one JSON object per line.
#include <malloc.h>

#include <algorithm>
#include <csignal>
#include <exception>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/rendezvous.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/training/program.hpp>
#include <tessera/trainer/flags/options.hpp>

#include "../src/program/cli/commands.hpp"
#include "../src/trainer/flags/parsed.hpp"
#include "backends.hpp"
#include "options.hpp"
#if defined(TESSERA_BENCH_EIGEN)
#include "foreign/foreign.hpp"
#endif

namespace fsdp::bench {

#if defined(TESSERA_BENCH_EIGEN)
namespace foreign {

void bind(train::FlagSet& flags, Options& o) {
  const auto counts = train::counts_up_to(1 << 20);
  flags.add("what", o.what, "use | unet | mlp").position = true;
  flags.add("repeats", o.repeats, "the median is printed; 0: 301 for use and unet, 7 for mlp",
            train::counts_up_to(1 << 20, 0));
  flags.add("units", o.units, "units of use", counts);
  flags.add("pictures", o.pictures, "of a step of unet", counts);
  flags.add("layers", o.layers, "layers of mlp", counts);
  flags.add("width", o.width, "inputs and outputs of a layer of mlp", counts);
  flags.add("rows", o.rows, "of the batch of mlp, on each rank", counts);
  flags.add("ranks", o.ranks, "threads that train mlp", counts);
  flags.add("matmul", o.matmul, "products of mlp by eigen | openblas | tessera");
}

int run(const Options& options, const train::FlagSet&) {
  const std::map<std::string, void (*)(const Options&)> benches = {
      {"use", measure_use}, {"unet", measure_unet}, {"mlp", measure_mlp}};
  const auto found = benches.find(options.what);
  require<InputError>(found != benches.end(), "foreign: '", options.what, "' is not use, unet or mlp");
  // Keeps freed memory in the process. Otherwise page faults of the user's loop would mask the library's time.
  mallopt(M_MMAP_THRESHOLD, 1 << 25);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  found->second(options);
  return 0;
}

}  // namespace foreign
#endif

namespace {

const std::map<std::string, void (*)(const BenchOptions&, const train::FlagSet&)> alone = {
    {"mlp", measure_mlp},          {"attention", measure_attention}, {"head", measure_head},
    {"matmul", measure_matmul},    {"optim", measure_optim},         {"codec", measure_codec},
    {"tokenize", measure_tokenize}};
const std::map<std::string, int (*StackBenches::*)(const BenchOptions&)> on_a_stack = {
    {"step", &StackBenches::step},
    {"residency", &StackBenches::residency},
    {"generate", &StackBenches::generate},
    {"load", &StackBenches::load}};

std::vector<Backend> backends() {
  std::vector<Backend> list{on_threads()};
#if defined(TESSERA_BENCH_MPI)
  list.push_back(on_mpi());
#endif
  return list;
}

/// Chooses MPI if mpirun started this process and --comm is not given. Treats `self` as one thread.
void resolve_launch_options(BenchOptions& options, bool comm_is_given) {
  using Kind = cli::CommChoice::Kind;
  cli::CommChoice& comm = options.stack.comm;
  if (!comm_is_given && comm::launched_by_mpi()) comm.kind = Kind::mpi;
  if (comm.kind != Kind::mpi)
    comm::require_one_process("--comm " + cli::to_text(comm), comm::launched_by_torchrun()
                                                                  ? "start them with mpirun"
                                                                  : "leave --comm out, or say --comm mpi");
  if (comm.kind == Kind::self) comm = {.kind = Kind::threads, .ranks = 1};
  if (!comm_is_given && (options.what == "comm" || options.what == "residency"))
    comm.ranks = 2;  // with one rank there would be no communication
  options.launch.ranks = comm.ranks;
}

int run(BenchOptions& options, const train::FlagSet& flags) {
  std::vector<std::string> names{"comm"};
  for (const auto& [name, measure] : alone) names.push_back(name);
  for (const auto& [name, measure] : on_a_stack) names.push_back(name);
  if (std::ranges::find(names, options.what) == names.end()) {
    names.insert(names.end(), {"foreign", "plan"});  // run_words handles these, if they are the first word
    throw InputError(message("bench: no bench is called '", options.what, "'; ", suggestion(options.what, names)));
  }
  check(options, flags);
  if (options.table) return measure_mlp_table(options, flags);
  if (const auto found = alone.find(options.what); found != alone.end()) return found->second(options, flags), 0;

  resolve_launch_options(options, flags.is_given("comm"));
  const std::vector<Backend> known = backends();
  const std::string text = cli::to_text(options.stack.comm), comm = text.substr(0, text.find(':'));
  const auto backend = std::ranges::find(known, comm, &Backend::comm);
  require<InputError>(backend != known.end(), "bench ", options.what, ": ",
                      comm == "nccl" ? "lower bounds and rivals are the CPU's; take --comm threads:N or mpi, or "
                                       "bench/gpu.sh on a machine with a GPU"
                                     : "this build has no MPI; take --comm threads:N");
  if (options.what == "comm") return backend->measure_comm(options);
  require<InputError>(options.stack.offload == cli::OffloadChoice::none, "bench ", options.what, ": --offload ",
                      cli::to_text(options.stack.offload), ": no bench is compiled with it; leave optimizer out");
  const auto stack = std::ranges::find_if(backend->stacks, [&](const StackBenches& each) {
    return each.takes(options.stack.sharding) && each.precision == options.stack.precision;
  });
  require(stack != backend->stacks.end(), "bench: --sharding ", cli::to_text(options.stack.sharding),
          " has no compiled stack");
  return (*stack.*on_a_stack.at(options.what))(options);
}

struct PlanOptions {
  std::int64_t rounds = 5;
};
void bind(train::FlagSet& flags, PlanOptions& options) {
  flags.add("ROUNDS", options.rounds, "medians are printed; left out: 5", train::counts_up_to(1000)).position = true;
}

/// Parses the words into Options and calls f with them.
template <class Options, class F>
int with_options(const std::string& name, const std::string& help, int argc, const char* const* argv, F f) {
  CLI::App app(help, name);
  train::Bound<Options> options;
  bind(options.flags, *options);
  train::add_options(app, options.flags, "bench", cli::config_tables());
  if (const auto help_text = train::run(app, argc, argv)) return print_text(stdout, help_text->text), 0;
  return f(*options, options.flags);
}

int run_words(int argc, const char* const* argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (first == "plan")
    return with_options<PlanOptions>("tessera_bench plan", "Plans compared with steps over known links.", argc - 1,
                                     argv + 1, [](const PlanOptions& options, const train::FlagSet& flags) {
                                       flags.require_ranges();
                                       return measure_plan(options.rounds), 0;
                                     });
  if (first == "foreign") {
#if defined(TESSERA_BENCH_EIGEN)
    return with_options<foreign::Options>("tessera_bench foreign", "A training loop that is not ours on Sharded.",
                                          argc - 1, argv + 1, foreign::run);
#else
    throw InputError("foreign: this build has no Eigen (Debian: libeigen3-dev); install it and configure again");
#endif
  }
  return with_options<BenchOptions>("tessera_bench",
                                    "Measures; one JSON object a line. `tessera_bench foreign` and `tessera_bench "
                                    "plan` have their own flags.",
                                    argc, argv, run);
}

/// Prints an error and returns the status. Under mpirun it joins the job, so that an error of all processes is printed
/// once.
int run_together(int argc, const char* const* argv) {
  try {
    return run_words(argc, argv);
  } catch (const Error&) {
    const std::vector<Backend> known = backends();
    const auto mpi = std::ranges::find(known, "mpi", &Backend::comm);
    if (mpi == known.end() || !comm::launched_by_mpi() || comm::launched_job().processes == 1) throw;
    return mpi->fail(std::current_exception());
  }
}

}  // namespace
}  // namespace fsdp::bench

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_DFL);  // a parent process may have set it to be ignored
  return fsdp::train::run_program([&] { return fsdp::bench::run_together(argc, argv); });
}
