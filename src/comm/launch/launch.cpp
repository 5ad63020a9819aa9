// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/launch.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <system_error>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {
namespace {

/// A launcher, and the variables that it sets in each process.
struct Launcher {
  const char* name;
  const char* size;  ///< the number of processes
  const char* rank;  ///< this process's number among them
  bool needs_rank;   ///< whether `size` counts only beside `rank`
};

/// A launcher inside of another stands before it: mpirun and torchrun are started in steps of Slurm.
constexpr std::array<Launcher, 11> launchers = {{
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", false},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", false},
    {"torchrun", "WORLD_SIZE", "RANK", true},
    {"torchrun", "WORLD_SIZE", "LOCAL_RANK", true},
    {"horovodrun", "HOROVOD_SIZE", "HOROVOD_RANK", false},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", false},
    {"flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", false},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", false},  // of MPICH, and of Slurm and Flux where they start MPICH's processes
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false},
    {"srun", "SLURM_NTASKS", "SLURM_STEP_ID", true},  // in a step it counts the step's processes
    {"srun", "SLURM_NPROCS", "SLURM_STEP_ID", true},  // its older name
}};

/// Variables that tell of a part of the processes, where none tells of all: how many are on this host, or which of
/// several this one is.
constexpr std::array<Launcher, 8> parts = {{
    {"mpiexec", "MPI_LOCALNRANKS", "MPI_LOCALRANKID", true},
    {"mpiexec", "PALS_LOCAL_SIZE", "PALS_RANKID", true},
    {"mpiexec", "", "PMIX_RANK", true},
    {"mpiexec", "", "PMI_RANK", true},
    {"mpiexec", "", "MPI_LOCALRANKID", true},
    {"mpiexec", "", "PALS_RANKID", true},
    {"aprun", "", "ALPS_APP_PE", true},
    {"srun", "", "SLURM_PROCID", true},
}};

/// Returns the number in a variable; nothing if it has none.
std::optional<int> number_in(const char* variable) {
  const std::string_view text = environment(variable);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// Returns the number of processes that a launcher's variables tell of; 0 if they tell nothing.
int told_by(const Launcher& launcher) {
  const std::optional<int> size = number_in(launcher.size), rank = number_in(launcher.rank);
  return launcher.needs_rank && !rank ? 0 : size.value_or(0);
}

/// Returns the least number of processes of which this one can be a part; 1 if it can be alone.
int least_of(const Launcher& part) {
  const std::optional<int> size = number_in(part.size), rank = number_in(part.rank);
  return rank ? std::max(size.value_or(1), *rank + 1) : 1;
}

/// Names a variable that tells of several processes.
void add_variable(LaunchedJob& job, const char* variable) {
  if (environment(variable).empty() || job.variables.find(variable) != std::string::npos) return;
  job.variables += (job.variables.empty() ? "" : ", ") + std::string(variable);
}

/// Names every variable without which another would still tell of several processes.
void add_others(LaunchedJob& job) {
  for (const Launcher& launcher : launchers)
    if (told_by(launcher) > 1) add_variable(job, launcher.size);
  for (const Launcher& part : parts)
    if (number_in(part.rank)) add_variable(job, *part.size != '\0' ? part.size : part.rank);
}

}  // namespace

LaunchedJob launched_job() {
  LaunchedJob job;
  for (const Launcher& launcher : launchers) {
    const int size = told_by(launcher);
    if (size == 0) continue;
    if (job.launcher.empty()) {
      const bool step = std::string_view(launcher.rank) == "SLURM_STEP_ID";
      job.processes = size;
      job.rank = number_in(step ? "SLURM_PROCID" : launcher.rank).value_or(0);
    }
    if (size != job.processes) continue;
    if (job.launcher.empty() || job.launcher == "mpiexec") job.launcher = launcher.name;
    add_variable(job, launcher.size);
  }
  for (const Launcher& part : parts) {
    if (!job.launcher.empty() || least_of(part) <= 1) continue;
    job = {.processes = least_of(part), .rank = number_in(part.rank).value_or(0), .launcher = part.name};
  }
  if (job.processes > 1) add_others(job);
  return job;
}

bool launched_by_mpi() {
  const std::initializer_list<const char*> variables = {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_RANK",
                                                        "PMIX_RANK"};
  return std::ranges::any_of(variables, [](const char* variable) { return !environment(variable).empty(); });
}

int launched_ranks_here() {
  for (const char* const variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
    if (const std::optional<int> ranks = number_in(variable); ranks && *ranks > 0) return *ranks;
  return 0;
}

void require_one_process(std::string_view what, std::string_view instead) {
  const LaunchedJob job = launched_job();
  require<InputError>(job.processes <= 1, what, " in each of ", job.launcher, "'s ", job.processes, " processes (",
                      job.variables, ") would be as many runs, each alone; ", instead, ", or unset ", job.variables,
                      " if that is what they are");
}

void require_joined(const LaunchedJob& job) {
  require<InputError>(
      job.processes <= 1, job.launcher, " started ", job.processes, " processes (", job.variables,
      "), and MPI sees one: each would be a run alone; start them with mpirun, or with srun --mpi=pmix, ", "or unset ",
      job.variables, " if that is what they are");
}

int exit_status_of(const std::exception& error) {
  if (const auto* const stopped = dynamic_cast<const StoppedError*>(&error)) return 128 + stopped->signal_number();
  const bool can_be_mended =
      dynamic_cast<const InputError*>(&error) != nullptr || dynamic_cast<const MemoryError*>(&error) != nullptr;
  if (can_be_mended) return ExitStatus::bad_input;
  const bool rank_or_numbers = dynamic_cast<const CollectiveError*>(&error) != nullptr ||
                               dynamic_cast<const DivergedError*>(&error) != nullptr ||
                               dynamic_cast<const CorruptionError*>(&error) != nullptr;
  return rank_or_numbers ? ExitStatus::lost : ExitStatus::failed;
}

}  // namespace fsdp::comm
