// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/launch.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include <gtest/gtest.h>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/rendezvous.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>

#include "job_variables.hpp"
#include "support/temporary_folder.hpp"

namespace fsdp::comm {
namespace {

using Variables = std::map<std::string, std::string>;

/// "LAUNCHER: RANK of PROCESSES (VARIABLES)".
std::string job_of(const Variables& variables) {
  const JobVariables set(variables);
  const LaunchedJob job = launched_job();
  return message(job.launcher, ": ", job.rank, " of ", job.processes, " (", job.variables, ")");
}

const std::string alone = ": 0 of 1 ()";

TEST(LaunchedJob, IsReadFromTheVariablesOfEachLauncher) {
  EXPECT_EQ(job_of({}), alone);
  EXPECT_EQ(job_of({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}}),
            "mpirun: 2 of 4 (OMPI_COMM_WORLD_SIZE)");
  EXPECT_EQ(job_of({{"MV2_COMM_WORLD_SIZE", "4"}, {"MV2_COMM_WORLD_RANK", "2"}}),
            "mpirun: 2 of 4 (MV2_COMM_WORLD_SIZE)");
  EXPECT_EQ(job_of({{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}}), "mpiexec: 2 of 4 (PMI_SIZE, PMI_RANK)");
  EXPECT_EQ(job_of({{"SLURM_STEP_NUM_TASKS", "4"},
                    {"SLURM_NTASKS", "4"},
                    {"SLURM_STEP_ID", "0"},
                    {"SLURM_PROCID", "2"},
                    {"PMI_SIZE", "4"},
                    {"PMI_RANK", "2"}}),
            "srun: 2 of 4 (PMI_SIZE, SLURM_STEP_NUM_TASKS, SLURM_NTASKS, PMI_RANK, SLURM_PROCID)");
  EXPECT_EQ(job_of({{"SLURM_NPROCS", "4"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "2"}}),
            "srun: 2 of 4 (SLURM_NPROCS, SLURM_PROCID)");
  EXPECT_EQ(job_of({{"HOROVOD_SIZE", "4"}, {"HOROVOD_RANK", "2"}}), "horovodrun: 2 of 4 (HOROVOD_SIZE)");
  EXPECT_EQ(job_of({{"FLUX_JOB_SIZE", "4"}, {"FLUX_TASK_RANK", "2"}}), "flux: 2 of 4 (FLUX_JOB_SIZE)");
  EXPECT_EQ(job_of({{"JSM_NAMESPACE_SIZE", "4"}, {"JSM_NAMESPACE_RANK", "2"}}), "jsrun: 2 of 4 (JSM_NAMESPACE_SIZE)");
  EXPECT_EQ(job_of({{"WORLD_SIZE", "4"}, {"RANK", "2"}, {"LOCAL_RANK", "0"}}), "torchrun: 2 of 4 (WORLD_SIZE)");
  EXPECT_EQ(job_of({{"WORLD_SIZE", "4"}, {"LOCAL_RANK", "2"}}), "torchrun: 2 of 4 (WORLD_SIZE)");
}

TEST(LaunchedJob, IsOneProcessIfVariablesDoNotDescribeAJob) {
  const Variables batch_script{{"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(job_of(batch_script), alone);
  EXPECT_EQ(job_of({{"WORLD_SIZE", "4"}}), alone) << "of no process in particular";
  EXPECT_EQ(job_of({{"WORLD_SIZE", ""}, {"RANK", ""}, {"SLURM_STEP_NUM_TASKS", ""}}), alone);
  EXPECT_EQ(job_of({{"SLURM_STEP_NUM_TASKS", "many"}, {"PMI_SIZE", "-3"}, {"OMPI_COMM_WORLD_SIZE", "0"}}), alone);
  EXPECT_EQ(job_of({{"WORLD_SIZE", "1"}, {"RANK", "0"}}), "torchrun: 0 of 1 (WORLD_SIZE)");
  EXPECT_EQ(
      job_of({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}),
      "srun: 0 of 1 (SLURM_STEP_NUM_TASKS)");
}

TEST(LaunchedJob, IsTheJobOfTheInnermostLauncher) {
  EXPECT_EQ(job_of({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}}),
            "mpirun: 0 of 1 (OMPI_COMM_WORLD_SIZE)");
  EXPECT_EQ(job_of({{"WORLD_SIZE", "8"}, {"RANK", "5"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}}),
            "torchrun: 5 of 8 (WORLD_SIZE, SLURM_STEP_NUM_TASKS, SLURM_PROCID)");
}

TEST(LaunchedJob, ListsAllVariablesThatMustBeUnsetToRunAlone) {
  const Variables all{{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"},      {"HOROVOD_SIZE", "2"},
                      {"SLURM_STEP_ID", "0"},        {"SLURM_NTASKS", "3"},   {"SLURM_NPROCS", "3"},
                      {"SLURM_PROCID", "1"},         {"MPI_LOCALRANKID", "1"}};
  const JobVariables set(all);
  std::string names = launched_job().variables;
  EXPECT_EQ(names,
            "OMPI_COMM_WORLD_SIZE, HOROVOD_SIZE, SLURM_NTASKS, SLURM_NPROCS, PMIX_RANK, MPI_LOCALRANKID, SLURM_PROCID");
  Variables rest;
  for (const auto& [name, value] : all)
    if (names.find(name) == std::string::npos) rest[name] = value;
  EXPECT_EQ(job_of(rest), alone);
}

TEST(LaunchedJob, HasSeveralRanksIfOnlyTheLocalSizeIsSet) {
  EXPECT_EQ(job_of({{"MPI_LOCALNRANKS", "4"}, {"MPI_LOCALRANKID", "0"}}),
            "mpiexec: 0 of 4 (MPI_LOCALNRANKS, "
            "MPI_LOCALRANKID)");
  EXPECT_EQ(job_of({{"PALS_LOCAL_SIZE", "2"}, {"PALS_RANKID", "5"}}), "mpiexec: 5 of 6 (PALS_LOCAL_SIZE, PALS_RANKID)");
  EXPECT_EQ(job_of({{"PALS_LOCAL_SIZE", "1"}, {"PALS_RANKID", "0"}}), alone);
  EXPECT_EQ(job_of({{"ALPS_APP_PE", "1"}}), "aprun: 1 of 2 (ALPS_APP_PE)");
}

TEST(LaunchedJob, HasSeveralRanksIfTheRankIsAboveZero) {
  EXPECT_EQ(job_of({{"PMIX_RANK", "3"}}), "mpiexec: 3 of 4 (PMIX_RANK)");
  EXPECT_EQ(job_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "3"}}), "srun: 3 of 4 (SLURM_PROCID)");
  EXPECT_EQ(job_of({{"PMIX_RANK", "0"}}), alone);
}

TEST(LaunchedJob, ReportsWhetherMpiLaunchedItAndTheLocalRanks) {
  const auto found = [](const Variables& variables) {
    const JobVariables set(variables);
    return message(launched_by_mpi(), " ", launched_by_open_mpi(), " ", launched_ranks_on_this_machine());
  };
  EXPECT_EQ(found({}), "0 0 0");
  EXPECT_EQ(found({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}), "1 1 2");
  EXPECT_EQ(found({{"MV2_COMM_WORLD_SIZE", "4"}, {"MV2_COMM_WORLD_LOCAL_SIZE", "3"}}), "1 0 3");
  EXPECT_EQ(found({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}, {"MPI_LOCALNRANKS", "4"}}), "1 0 4");
  EXPECT_EQ(found({{"PMIX_RANK", "0"}}), "1 0 0");
  EXPECT_EQ(found({{"PALS_RANKID", "0"}, {"PALS_LOCAL_SIZE", "2"}}), "0 0 2");
  EXPECT_EQ(found({{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "1"}, {"PMI_SIZE", "4"}}), "0 0 0");
  EXPECT_EQ(found({{"WORLD_SIZE", "2"}, {"RANK", "0"}}), "0 0 0");
}

TEST(RequireOneProcess, ErrorListsTheVariablesAndTheRemedy) {
  const JobVariables set({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMI_SIZE", "4"}, {"PMI_RANK", "1"}});
  EXPECT_EQ(
      test::input_error_of([] { require_one_process("--comm threads:2", "leave --comm out"); }),
      "--comm threads:2 in each of srun's 4 processes (PMI_SIZE, SLURM_STEP_NUM_TASKS, PMI_RANK) would be as many "
      "runs, each alone; leave --comm out, or unset PMI_SIZE, SLURM_STEP_NUM_TASKS, PMI_RANK if that is what they are");
  EXPECT_EQ(
      test::input_error_of([] { require_joined(launched_job()); }),
      "srun started 4 processes (PMI_SIZE, SLURM_STEP_NUM_TASKS, PMI_RANK), and MPI sees one: each would be a run "
      "alone; start them with mpirun, or with srun --mpi=pmix, or unset PMI_SIZE, SLURM_STEP_NUM_TASKS, PMI_RANK if "
      "that is what they are");
  EXPECT_INPUT_ERROR(torchrun_place(), "a rank of NCCL alone in each of srun's 4 processes");
}

TEST(BindToCoresNear, BindsAnUnboundProcessToTheCoresOfTheDevicesNode) {
  const std::string all = device::affinity_mask();
  const auto cores = std::ranges::count(all, '1');
  if (cores < 2 || cores < sysconf(_SC_NPROCESSORS_ONLN)) GTEST_SKIP() << "needs two cores, and all of the machine's";
  const auto first = all.find('1'), last = all.rfind('1');
  const std::string only_last = std::string(last, '0') + "1", from_first = std::to_string(first);
  const test::TemporaryFolder sys;
  const std::filesystem::path device = sys.path() / "bus/pci/devices/0000:1b:00.0";
  const auto binds = [&] { return bind_to_cores_near("0000:1b:00.0", sys.path()); };
  /// Returns the mask of a thread that binds itself by such files; an empty text counts as no file.
  const auto bound = [&](const std::string& node, const std::string& list, bool expected) {
    std::filesystem::remove_all(device);
    if (!node.empty()) sys.write("bus/pci/devices/0000:1b:00.0/numa_node", node + "\n");
    if (!list.empty()) sys.write("bus/pci/devices/0000:1b:00.0/local_cpulist", list + "\n");
    std::string mask;
    std::jthread([&] {
      EXPECT_EQ(binds(), expected) << node << ", " << list;
      mask = device::affinity_mask();
      EXPECT_EQ(binds(), expected && mask == all) << "a bound process stays as it is";
    }).join();
    return mask;
  };
  EXPECT_EQ(bound("1", std::to_string(last), true), only_last);
  EXPECT_EQ(bound("0", from_first + "-" + std::to_string(last), true), all);
  EXPECT_EQ(bound("0", std::to_string(last) + "," + std::to_string(last) + "-1100", true), only_last);
  for (const auto& [node, list] : {std::pair{"-1", "0"}, {"", "0"}, {"0", ""}, {"0", "near"}, {"0", "0-x"}})
    EXPECT_EQ(bound(node, list, false), all) << node << ", " << list;
  EXPECT_FALSE(bind_to_cores_near("0000:1c:00.0", sys.path()));

  bound("0", std::to_string(last), true);
  const JobVariables set(std::map<std::string, std::string>{{"SLURM_CPUS_PER_TASK", std::to_string(cores)}});
  std::string warning;
  std::jthread([&] {
    Threads<>::run(1, {}, [&](Threads<>& communicator) {
      EXPECT_TRUE(binds());
      agree_on_cores(communicator);
      warning = cores_warning(1, 0);
    });
  }).join();
  EXPECT_EQ(warning, "") << "the job has requested cores enough";
}

}  // namespace
}  // namespace fsdp::comm
