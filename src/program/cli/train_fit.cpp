// SPDX-License-Identifier: Apache-2.0
#include "train_fit.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/trainer/data/data_names.hpp>
#include <tessera/trainer/flags/cluster_file.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/processor.hpp>

#include "../../trainer/data/files/input_files.hpp"
#include "way_flags.hpp"
#include "ways.hpp"

namespace fsdp::cli {
namespace {

constexpr double longest_search_seconds = 3600;  // ranks wait for rank 0, which estimates

/// A way to time, and what came of it.
struct Trial {
  WayFlags flags;
  double planned_seconds = 0;  ///< known to rank 0
};

/// The ways to time, the same in all processes. Ranks may be threads of one.
struct Trials {
  std::mutex mutex;
  std::vector<Trial> list;
  bool leads = false;  ///< whether rank 0 is in this process
};

/// Returns the cluster of a run: a known one has as many ranks as the run, a file says its own number.
plan::Cluster cluster_of_run(const std::string& name, int ranks) {
  const std::vector<std::string> known = plan::known_cluster_names();
  const bool any_size = std::ranges::find(known, name) != known.end();
  plan::Cluster cluster = train::read_cluster(name, any_size ? ranks : 0);
  require<InputError>(cluster.ranks == ranks, "--fit: the run has ", ranks, ranks == 1 ? " rank" : " ranks",
                      ", and --cluster ", name, " is of ", cluster.ranks,
                      "; start as many (--comm threads:N, or mpirun), or calibrate with as many as you start");
  return cluster;
}

/// Throws InputError, before anything slow, for data and a folder of checkpoints that the run would refuse. Collective.
void check_places(const comm::Ranks& ranks, const train::TrainOptions& options) {
  (void)train::CheckpointDir(ranks, options);
  train::read_together(ranks, options.launch.disk_deadline_seconds, "--data", [&] {
    const data::DataNames names = data::parse_data(options.data);
    (void)data::input_files(std::vector<std::filesystem::path>(names.paths.begin(), names.paths.end()));
  });
}

/// Rank 0 estimates, and tells the others which ways there are to time. Collective.
void find_trials(const comm::Ranks& ranks, const Bound<Train>& command, const FitStacks& stacks, Trials& trials) {
  comm::agree_on_arguments(ranks, write_toml(command.flags));
  train::agree_on_instruction_set(ranks);
  check_places(ranks, command->options);
  std::vector<Way> best;
  std::vector<WayFlags> flags;
  std::string error;
  if (ranks.rank() == 0) {
    try {
      const plan::Cluster cluster = cluster_of_run(*command->options.cluster, ranks.size());
      const FitSpace space(*command, command.flags, cluster, stacks.has);
      best = find_ways(*command, space, [&](const Train& train) { return stacks.estimate(train, cluster); }).best;
      for (const Way& way : best) flags.push_back(flags_of_way(way.train));
    } catch (...) {
      error = comm::encoded_exception();
    }
  }
  train::with_disk_deadline(ranks, longest_search_seconds, "--fit: rank 0 estimates ways", [&] {
    comm::throw_first(comm::gather_texts(ranks, error, "--fit"));
    flags = ways_of_text(comm::gather_texts(ranks, text_of_ways(flags), "--fit").front());
  });
  const std::lock_guard lock(trials.mutex);
  if (trials.list.empty())
    for (const WayFlags& way : flags) trials.list.push_back({.flags = way});
  for (std::size_t i = 0; i < best.size(); ++i) trials.list[i].planned_seconds = best[i].step.estimate.seconds;
  trials.leads = trials.leads || ranks.rank() == 0;
}

/// Throws MemoryError: why none of the ways could be timed.
[[noreturn]] void refuse(const Trials& trials, std::span<const train::TimedStep> timed) {
  std::string text = message("--fit: a plan says that ", trials.list.size() == 1 ? "this way fits" : "these ways fit",
                             ", and for none of them is there memory; lower the memory that --cluster says");
  for (std::size_t i = 0; i < timed.size(); ++i)
    text += message("; ", command_line(trials.list[i].flags), ": ", timed[i].failed);
  throw MemoryError(text);
}

std::string text_of(const Trials& trials, std::span<const train::TimedStep> timed, std::size_t taken) {
  std::string text;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const Trial& trial = trials.list[i];
    text += message(
        "fit       ", i + 1, "  ", command_line(trial.flags), "\n             planned ",
        report::planned_seconds_text(trial.planned_seconds), " a step, ",
        timed[i].failed.empty() ? "took " + report::seconds_text(timed[i].seconds) : "passed over: " + timed[i].failed,
        i == taken ? "; taken" : "", "\n");
  }
  return text;
}

}  // namespace

void check_fit(const Train& command) {
  if (!command.fit) return;
  const train::TrainOptions& options = command.options;
  require<InputError>(!options.data.empty() || options.dry_run || options.print_schedule,
                      "--data is missing; give files or folders of text");
  require<InputError>(options.cluster.has_value(), "--fit plans with the figures of a cluster, and --cluster is ",
                      "missing; tessera calibrate --out FILE measures this machine");
  for (const auto& [given, flag] : {std::pair(options.dry_run, "dry-run"), {options.print_schedule, "print-schedule"}})
    require<InputError>(!given, "--fit times steps of ways to train, and --", flag,
                        " starts none; leave one of them out, or call tessera plan --fit");
  require<InputError>(!options.resume, "--fit looks for the way that a run begins with, and --resume ",
                      options.resume.value_or(""), " goes on in a way that was chosen; leave one of them out");
  require<InputError>(!options.memory, "--fit plans with the memory that --cluster says, and --memory ",
                      options.memory.value_or(""), " is for budgets of one way; leave one of them out");
}

std::optional<std::size_t> fastest(std::span<const train::TimedStep> timed) {
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < timed.size(); ++i)
    if (timed[i].failed.empty() && (!first || timed[i].seconds < timed[*first].seconds)) first = i;
  return first;
}

int train_fit(Bound<Train>& command, const FitStacks& stacks) {
  train::require_apart(command->options, train::files_of(command.flags));
  Trials trials;
  int status = stacks.on_ranks([&](const comm::Ranks& ranks) {
    find_trials(ranks, command, stacks, trials);
    return 0;
  });
  std::vector<train::TimedStep> timed;
  for (const Trial& trial : trials.list) {
    if (status != 0) return status;
    if (trials.leads)
      print_text(stderr, message("--fit: timing ", timed.size() + 1, " of ", trials.list.size(), ", ",
                                 command_line(trial.flags), "\n"));
    status = stacks.time(with_flags(*command, trial.flags), timed.emplace_back());
  }
  if (status != 0) return status;
  const std::optional<std::size_t> taken = fastest(timed);
  if (!taken) return stacks.on_ranks([&](const comm::Ranks&) -> int { refuse(trials, timed); });
  if (trials.leads) print_text(stdout, text_of(trials, timed, *taken));
  give(command.flags, trials.list[*taken].flags);
  command->fit = false;
  command.flags.find("fit")->given = false;
  return stacks.train();
}

}  // namespace fsdp::cli
