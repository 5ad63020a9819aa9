// SPDX-License-Identifier: Apache-2.0
#include <comm/launch.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <system_error>

#include <comm/monitor.hpp>
#include <comm/signals.hpp>
#include <fsdp/core/environment.hpp>
#include <fsdp/core/error.hpp>

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
constexpr std::array<Launcher, 9> launchers = {{
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", false},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", false},
    {"torchrun", "WORLD_SIZE", "RANK", true},
    {"torchrun", "WORLD_SIZE", "LOCAL_RANK", true},
    {"jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", false},
    {"flux", "FLUX_JOB_SIZE", "FLUX_TASK_RANK", false},
    {"mpiexec", "PMI_SIZE", "PMI_RANK", false},  // of MPICH, and of Slurm and Flux where they start MPICH's processes
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false},
    {"srun", "SLURM_NTASKS", "SLURM_STEP_ID", true},  // in a step it counts the step's processes
}};

/// Variables that say which of several processes this is, where none says of how many.
constexpr std::array<Launcher, 3> rank_variables = {{
    {"mpiexec", "", "PMIX_RANK", true},
    {"mpiexec", "", "PALS_RANKID", true},
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

/// Names a variable that says how many processes there are.
void add_variable(LaunchedJob& job, const Launcher& launcher, const char* variable) {
  if (job.launcher.empty() || job.launcher == "mpiexec") job.launcher = launcher.name;
  if (job.variables.find(variable) == std::string::npos)
    job.variables += (job.variables.empty() ? "" : ", ") + std::string(variable);
}

}  // namespace

LaunchedJob launched_job() {
  LaunchedJob job;
  for (const Launcher& launcher : launchers) {
    const std::optional<int> size = number_in(launcher.size), rank = number_in(launcher.rank);
    if (!size || *size == 0 || (launcher.needs_rank && !rank)) continue;
    if (job.launcher.empty()) {
      job.processes = *size;
      job.rank =
          std::string_view(launcher.rank) == "SLURM_STEP_ID" ? number_in("SLURM_PROCID").value_or(0) : rank.value_or(0);
    }
    if (*size == job.processes) add_variable(job, launcher, launcher.size);
  }
  if (!job.launcher.empty()) return job;
  for (const Launcher& launcher : rank_variables)
    if (const int rank = number_in(launcher.rank).value_or(0); rank > 0) {
      job.processes = rank + 1;
      job.rank = rank;
      add_variable(job, launcher, launcher.rank);
      break;
    }
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
                      job.variables, ") would train as many models; ", instead, ", or unset ", job.variables,
                      " if each is a run of its own");
}

void require_joined(const LaunchedJob& job) {
  require<InputError>(job.processes <= 1, job.launcher, " started ", job.processes, " processes (", job.variables,
                      "), and MPI sees one: each would train a model of its own; start them with mpirun, or with ",
                      "srun --mpi=pmix, or unset ", job.variables, " if each is a run of its own");
}

int exit_status_of(const std::exception& error) {
  if (const auto* const stopped = dynamic_cast<const StoppedError*>(&error)) return 128 + stopped->signal();
  const bool can_be_mended =
      dynamic_cast<const InputError*>(&error) != nullptr || dynamic_cast<const MemoryError*>(&error) != nullptr;
  if (can_be_mended) return ExitStatus::bad_input;
  const bool rank_or_numbers =
      dynamic_cast<const CollectiveError*>(&error) != nullptr || dynamic_cast<const DivergedError*>(&error) != nullptr;
  return rank_or_numbers ? ExitStatus::lost : ExitStatus::failed;
}

}  // namespace fsdp::comm
