// SPDX-License-Identifier: Apache-2.0
/// @file
/// Code shared by the launch functions of all backends: `Backend::run(..., f)` calls f(communicator) on every rank.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace fsdp::comm {

/// Exit statuses of a program, in addition to 128 + signal if a signal ended it. docs/faults.md lists their causes.
struct ExitStatus {
  static constexpr int done = 0;       ///< success
  static constexpr int failed = 1;     ///< output cannot be written, or an internal error
  static constexpr int bad_input = 2;  ///< an error that the user can fix: InputError, MemoryError
  static constexpr int lost = 3;       ///< diverged (nonfinite values), corrupted data, or a lost rank
};

/// Returns the exit status of a program that ends because of `error`.
int exit_status_of(const std::exception& error);

/// This process's job, as its launcher's environment variables describe it before any communicator exists.
struct LaunchedJob {
  int processes = 1;           ///< number of processes that the launcher started
  int rank = 0;                ///< this process's number among them
  std::string launcher = {};   ///< name of the launcher, such as "srun"; empty if no launcher started this process
  std::string variables = {};  ///< the variables that specify `processes`, such as "SLURM_STEP_NUM_TASKS, PMI_SIZE"
};

/// Reads the variables of Open MPI, MPICH and its derivatives, MVAPICH, PMIx, ALPS, PALS, Flux, jsrun, torchrun,
/// Horovod and Slurm's steps. If launchers are nested, the innermost is used. The variables of a whole Slurm allocation
/// are ignored, since a batch script runs once.
LaunchedJob launched_job();

/// Returns whether mpirun or another MPI launcher started this process.
bool launched_by_mpi();
/// Returns whether Open MPI's mpirun started this process.
bool launched_by_open_mpi();

/// Returns the number of ranks on this machine according to an MPI launcher; 0 if no launcher sets it.
int launched_ranks_on_this_machine();

/// Throws InputError if the launcher started several processes but this process would run as a separate job. `what`:
/// the reason, such as "--comm threads:2"; `instead`: the remedy.
void require_one_process(std::string_view what, std::string_view instead);
/// Throws the same error if `job` has several processes; call it if MPI reports only one, as when launcher and MPI do
/// not recognise each other.
void require_joined(const LaunchedJob& job);

}  // namespace fsdp::comm
