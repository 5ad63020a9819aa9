// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/launch.hpp>

#include <algorithm>
#include <optional>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/stopped.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "../../fsdp/core/strings.hpp"

namespace fsdp::comm {
namespace {

/// A launcher, and the variables that it sets in each process; a name is empty if the launcher does not set one.
struct Launcher {
  const char* name;
  const char* rank;         ///< this process's number
  const char* size = "";    ///< the number of processes
  const char* here = "";    ///< the number of processes on this host
  const char* beside = "";  ///< `size` is used only if this variable is set too
  bool starts_mpi = false;  ///< whether processes with these variables are MPI's
};

/// A nested launcher precedes the launcher that may have started it: mpirun and torchrun are started in steps of Slurm.
/// Entries whose variables describe only a part of the processes come last.
constexpr Launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "", true},
    {"mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "", true},
    {"torchrun", "RANK", "WORLD_SIZE", "", "RANK"},
    {"torchrun", "LOCAL_RANK", "WORLD_SIZE", "", "LOCAL_RANK"},
    {"horovodrun", "HOROVOD_RANK", "HOROVOD_SIZE"},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    {"flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE"},  // MPICH; also Slurm and Flux if they start MPICH's processes
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "",
     "SLURM_STEP_ID"},  // in a step, the variable counts the step's processes
    {"srun", "SLURM_PROCID", "SLURM_NPROCS", "", "SLURM_STEP_ID"},  // older name of the same variable
    {"mpiexec", "MPI_LOCALRANKID", "", "MPI_LOCALNRANKS"},
    {"mpiexec", "PALS_RANKID", "", "PALS_LOCAL_SIZE"},
    {"mpiexec", "PMIX_RANK", "", "", "", true},
    {"mpiexec", "PMI_RANK", "", "", "", true},
    {"mpiexec", "MPI_LOCALRANKID"},
    {"mpiexec", "PALS_RANKID"},
    {"aprun", "ALPS_APP_PE"},
    {"srun", "SLURM_PROCID"},
};

/// Returns the number in a variable; nullopt if it does not contain a number of at least 0.
std::optional<int> number_in(const char* variable) {
  const std::optional<int> value = parsed<int>(environment(variable));
  return value && *value >= 0 ? value : std::nullopt;
}

/// Returns whether a launcher has a variable for the number of all processes.
bool tells_all(const Launcher& launcher) { return *launcher.size != '\0'; }

/// Returns the number of processes according to a launcher's variables; 0 if they do not specify it.
int rank_from(const Launcher& launcher) {
  const bool counts = *launcher.beside == '\0' || number_in(launcher.beside);
  return counts ? number_in(launcher.size).value_or(0) : 0;
}

/// Returns the minimum number of processes that this process can belong to; 1 if it can be the only one.
int least_of(const Launcher& part) {
  const std::optional<int> here = number_in(part.here), rank = number_in(part.rank);
  return rank && !tells_all(part) ? std::max(here.value_or(1), *rank + 1) : 1;
}

/// Appends the name of a variable that shows that there are several processes.
void add_variable(LaunchedJob& job, const char* variable) {
  if (environment(variable).empty() || job.variables.find(variable) != std::string::npos) return;
  job.variables += (job.variables.empty() ? "" : ", ") + std::string(variable);
}

template <class... Types>
bool is_any_of(const std::exception& error) {
  return ((dynamic_cast<const Types*>(&error) != nullptr) || ...);
}

}  // namespace

LaunchedJob launched_job() {
  LaunchedJob job;
  for (const Launcher& launcher : launchers) {
    const int size = rank_from(launcher);
    if (size == 0) continue;
    if (job.launcher.empty()) {
      job.processes = size;
      job.rank = number_in(launcher.rank).value_or(0);
    }
    if (size != job.processes) continue;
    if (job.launcher.empty() || job.launcher == "mpiexec") job.launcher = launcher.name;
    add_variable(job, launcher.size);
  }
  for (const Launcher& part : launchers) {
    if (!job.launcher.empty() || least_of(part) <= 1) continue;
    job = {.processes = least_of(part), .rank = number_in(part.rank).value_or(0), .launcher = part.name};
  }
  if (job.processes <= 1) return job;
  for (const Launcher& launcher : launchers) {  // all other variables that would show several if the first were unset
    if (rank_from(launcher) > 1) add_variable(job, launcher.size);
    if (!tells_all(launcher) && number_in(launcher.rank))
      add_variable(job, *launcher.here != '\0' ? launcher.here : launcher.rank);
  }
  return job;
}

bool launched_by_mpi() {
  return std::ranges::any_of(launchers, [](const Launcher& each) {
    return each.starts_mpi && !environment(tells_all(each) ? each.size : each.rank).empty();
  });
}

bool launched_by_open_mpi() {
  static_assert(std::string_view(launchers[0].size) == "OMPI_COMM_WORLD_SIZE");
  return !environment(launchers[0].size).empty();
}

int launched_ranks_on_this_machine() {
  for (const Launcher& launcher : launchers)
    if (const std::optional<int> ranks = number_in(launcher.here); ranks && *ranks > 0) return *ranks;
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
  if (is_any_of<InputError, MemoryError>(error)) return ExitStatus::bad_input;
  return is_any_of<CollectiveError, DivergedError, CorruptionError>(error) ? ExitStatus::lost : ExitStatus::failed;
}

}  // namespace fsdp::comm
