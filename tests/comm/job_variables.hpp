// SPDX-License-Identifier: Apache-2.0
/// @file
/// The environment variables that a launcher sets for a process.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace fsdp::comm {

/// Sets exactly these launcher variables and unsets all others.
class JobVariables {
 public:
  explicit JobVariables(const std::map<std::string, std::string>& values) {
    for (const char* name : names) {
      const char* const before = std::getenv(name);
      before_[name] = before == nullptr ? std::optional<std::string>() : before;
      const auto found = values.find(name);
      set(name, found == values.end() ? std::optional<std::string>() : found->second);
    }
  }
  JobVariables(const JobVariables&) = delete;
  JobVariables& operator=(const JobVariables&) = delete;
  ~JobVariables() {
    for (const auto& [name, value] : before_) set(name, value);
  }

 private:
  static constexpr const char* names[] = {"RANK",
                                          "WORLD_SIZE",
                                          "LOCAL_RANK",
                                          "LOCAL_WORLD_SIZE",
                                          "MASTER_ADDR",
                                          "MASTER_PORT",
                                          "TORCHELASTIC_USE_AGENT_STORE",
                                          "CUDA_VISIBLE_DEVICES",
                                          "SLURM_GPUS_PER_TASK",
                                          "OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_RANK",
                                          "OMPI_COMM_WORLD_LOCAL_SIZE",
                                          "MV2_COMM_WORLD_SIZE",
                                          "MV2_COMM_WORLD_RANK",
                                          "MV2_COMM_WORLD_LOCAL_SIZE",
                                          "MPI_LOCALNRANKS",
                                          "PMI_SIZE",
                                          "PMI_RANK",
                                          "PMIX_RANK",
                                          "PALS_RANKID",
                                          "PALS_LOCAL_SIZE",
                                          "MPI_LOCALRANKID",
                                          "ALPS_APP_PE",
                                          "HOROVOD_SIZE",
                                          "HOROVOD_RANK",
                                          "JSM_NAMESPACE_SIZE",
                                          "JSM_NAMESPACE_RANK",
                                          "FLUX_JOB_SIZE",
                                          "FLUX_TASK_RANK",
                                          "SLURM_STEP_NUM_TASKS",
                                          "SLURM_STEP_ID",
                                          "SLURM_NTASKS",
                                          "SLURM_NPROCS",
                                          "SLURM_PROCID",
                                          "SLURM_CPUS_PER_TASK",
                                          "SLURM_CPUS_ON_NODE",
                                          "NCPUS",
                                          "LSB_DJOB_NUMPROC",
                                          "OMP_NUM_THREADS"};

  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      setenv(name.c_str(), value->c_str(), 1);
    else
      unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace fsdp::comm
