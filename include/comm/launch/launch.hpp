// SPDX-License-Identifier: Apache-2.0
/// @file
/// Parts shared by the launch functions of all backends: `Backend::run(..., f)` calls f(communicator) on every rank.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace fsdp::comm {

/// Exit statuses of a program, besides 128 + signal when a signal ended it. docs/faults.md lists their causes.
struct ExitStatus {
  static constexpr int done = 0;       ///< success
  static constexpr int failed = 1;     ///< output cannot be written, or an error of the program itself
  static constexpr int bad_input = 2;  ///< the user can fix it: InputError, MemoryError
  static constexpr int lost = 3;       ///< diverged (numbers that are not finite), or a lost rank
};

/// Returns the exit status of a program that `error` ends.
int exit_status_of(const std::exception& error);

/// This process's job, as its launcher's environment variables describe it before any communicator exists.
struct LaunchedJob {
  int processes = 1;           ///< that the launcher started
  int rank = 0;                ///< of this process among them
  std::string launcher = {};   ///< such as "srun"; empty: none started this process
  std::string variables = {};  ///< that say how many, such as "SLURM_STEP_NUM_TASKS, PMI_SIZE"
};

/// Reads the variables of Open MPI, MPICH and its kin, MVAPICH, PMIx, ALPS, PALS, Flux, jsrun, torchrun, Horovod and
/// Slurm's steps. If several launchers started one another, the innermost counts. The variables of a whole Slurm
/// allocation do not count: a batch script runs once.
LaunchedJob launched_job();

/// Returns whether mpirun or another MPI launcher started this process.
bool launched_by_mpi();
/// The same of Open MPI's mpirun.
bool launched_by_open_mpi();

/// Returns the number of ranks on this machine that an MPI launcher names; 0 if none does.
int launched_ranks_here();

/// Throws InputError if the launcher started several processes, and this one is a job of its own. `what`: why it is,
/// such as "--comm threads:2"; `instead`: what to do.
void require_one_process(std::string_view what, std::string_view instead);
/// The same for a process of `job` that MPI took for the only one, as when launcher and MPI do not know each other.
void require_joined(const LaunchedJob& job);

}  // namespace fsdp::comm
