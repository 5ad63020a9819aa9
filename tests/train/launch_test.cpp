// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include "comm/job_variables.hpp"

namespace fsdp::train {
namespace {

using Comm = comm::Threads<>;
using comm::ExitStatus;

struct Ended {
  int status = 0;
  std::string said;
  friend bool operator==(const Ended&, const Ended&) = default;
};
std::ostream& operator<<(std::ostream& out, const Ended& ended) { return out << ended.status << ": " << ended.said; }

Ended ended(const std::function<int()>& program) {
  ::testing::internal::CaptureStderr();
  const int status = program();
  return {status, ::testing::internal::GetCapturedStderr()};
}

/// Launches two ranks; the second one throws.
template <class Error>
int throws() {
  return launch<Comm>({.ranks = 2}, [](Comm& communicator) {
    if (communicator.rank() == 1) throw Error("data.txt: no such file");
    communicator.barrier();
  });
}

TEST(Launch, ReturnsTheExitStatusOfItsRanks) {
  std::atomic<int> ranks = 0;
  EXPECT_EQ(launch<Comm>({.ranks = 2}, [&](Comm&) { ++ranks; }), ExitStatus::done);
  EXPECT_EQ(ranks, 2);
  EXPECT_EQ(launch<Comm>({.ranks = 2}, [](Comm&) { return 143; }), 143);
}

TEST(Launch, AnErrorPrintsOneLineAndSetsTheExitStatus) {
  const std::string line = "tessera: data.txt: no such file\n";
  EXPECT_EQ(ended(throws<InputError>), (Ended{ExitStatus::bad_input, line}));
  EXPECT_EQ(ended(throws<DivergedError>), (Ended{ExitStatus::lost, line}));
  EXPECT_EQ(ended(throws<std::runtime_error>), (Ended{ExitStatus::failed, line}));
}

TEST(Launch, AnUnknownExceptionPrintsOneLineAndSetsTheExitStatus) {
  const Ended seven = ended([] { return launch<Comm>({.ranks = 2}, [](Comm&) -> int { throw 7; }); });
  EXPECT_EQ(seven, (Ended{ExitStatus::failed,
                          "tessera: ended by an exception that is no std::exception; throw "
                          "fsdp::Error, which says what happened\n"}));
}

TEST(Launch, FailureToStartRanksIsAnInputError) {
  const Ended none = ended([] { return launch<Comm>({.ranks = 0}, [](Comm&) {}); });
  EXPECT_EQ(none.status, ExitStatus::bad_input);
  EXPECT_TRUE(none.said.starts_with("tessera: --ranks 0: a program starts 1 to ")) << none.said;
  // Every number is validated even if it was not read from a flag.
  EXPECT_THROW(validate(LaunchOptions{.threads = -1}), InputError);
  EXPECT_THROW(validate(LaunchOptions{.deadline_seconds = 0}), InputError);
  EXPECT_THROW(validate(LaunchOptions{.device_deadline_seconds = -1}), InputError);
  EXPECT_THROW(validate(LaunchOptions{.disk_deadline_seconds = 0}), InputError);
  EXPECT_NO_THROW(validate(LaunchOptions()));
}

TEST(Launch, ThrowsWithinRunProgramWhichPrintsTheError) {
  bool caught = false;
  const auto program = [&] {
    return run_program([&]() -> int {
      try {
        return throws<InputError>();
      } catch (const InputError&) {
        caught = true;
        throw;
      }
    });
  };
  EXPECT_EQ(ended(program), (Ended{ExitStatus::bad_input, "tessera: data.txt: no such file\n"}));
  EXPECT_TRUE(caught);
  EXPECT_EQ(ended(throws<InputError>).status, ExitStatus::bad_input) << "the program before has ended";
}

using Texts = std::vector<std::string>;

TEST(SharedCores, CountTheCoresOfTheMaskAndTheRanksThatShareThem) {
  EXPECT_EQ(comm::shared_cores(Texts{"1111", "1111"}, {}, 0, {}), (comm::SharedCores{.cores = 4, .ranks = 2}))
      << "not bound";
  EXPECT_EQ(comm::shared_cores(Texts{"11", "0011"}, {}, 1, {}), (comm::SharedCores{.cores = 2, .ranks = 1}))
      << "each its own";
  EXPECT_EQ(comm::shared_cores(Texts{"1", "01", "1"}, {}, 0, {}), (comm::SharedCores{.cores = 1, .ranks = 2}))
      << "two on one";
  EXPECT_EQ(comm::shared_cores(Texts{"11", "11", "11"}, Texts{"a", "b", "a"}, 2, {}),
            (comm::SharedCores{.cores = 2, .ranks = 2}))
      << "one elsewhere";
}

TEST(SharedCores, DoNotExceedTheCpuQuotaOfAllRanksOfTheHost) {
  const Texts bound{"1111", "00001111"};
  EXPECT_EQ(comm::shared_cores(bound, {}, 0, 6), (comm::SharedCores{.cores = 6, .ranks = 2}));
  EXPECT_EQ(comm::shared_cores(bound, {}, 0, 8), (comm::SharedCores{.cores = 4, .ranks = 1}));
  EXPECT_EQ(comm::shared_cores(bound, Texts{"a", "b"}, 1, 3), (comm::SharedCores{.cores = 3, .ranks = 1}));
}

/// The cores that environment variables specify for one of 2 processes on this host and 8 in total.
comm::StatedCores stated_by(const std::map<std::string, std::string>& variables) {
  const comm::JobVariables set(variables);
  return comm::stated_cores(2, 8);
}

TEST(StatedCores, AreReadFromTheVariablesOfSlurmPbsAndLsf) {
  using comm::StatedCores;
  EXPECT_EQ(stated_by({}), StatedCores{});
  EXPECT_EQ(stated_by({{"SLURM_CPUS_PER_TASK", "3"}, {"SLURM_CPUS_ON_NODE", "64"}}),
            (StatedCores{.cores = 3, .variable = "SLURM_CPUS_PER_TASK"}));
  EXPECT_EQ(stated_by({{"SLURM_CPUS_ON_NODE", "9"}}), (StatedCores{.cores = 4, .variable = "SLURM_CPUS_ON_NODE"}));
  EXPECT_EQ(stated_by({{"NCPUS", "6"}}), (StatedCores{.cores = 3, .variable = "NCPUS"}));
  EXPECT_EQ(stated_by({{"LSB_DJOB_NUMPROC", "16"}}), (StatedCores{.cores = 2, .variable = "LSB_DJOB_NUMPROC"}));
  EXPECT_EQ(stated_by({{"OMP_NUM_THREADS", "4,2"}, {"NCPUS", "many"}}), StatedCores{.threads = 4});
  EXPECT_EQ(stated_by({{"OMP_NUM_THREADS", "-1"}, {"SLURM_CPUS_ON_NODE", "1"}}), StatedCores{})
      << "no number of threads, and less than a core for each";
}

TEST(DefaultThreads, AreOmpNumThreadsOrTheAvailableAndRequestedCores) {
  EXPECT_EQ(comm::default_threads({.cores = 8, .ranks = 2}, {}, 2), 4);
  EXPECT_EQ(comm::default_threads({.cores = 8, .ranks = 2}, {.cores = 3}, 1), 3) << "for this process alone";
  EXPECT_EQ(comm::default_threads({.cores = 8, .ranks = 2}, {.cores = 4}, 2), 2) << "for a process of two ranks";
  EXPECT_EQ(comm::default_threads({.cores = 1, .ranks = 1}, {.cores = 4}, 1), 1) << "fewer than were requested";
  EXPECT_EQ(comm::default_threads({.cores = 8, .ranks = 1}, {.cores = 4, .threads = 6}, 1), 6);
  EXPECT_EQ(comm::default_threads({.cores = 1, .ranks = 4}, {.cores = 1}, 4), 1);
}

TEST(AgreeOnCores, ComparesRequestedCoresAndWarnsOnce) {
  const std::int64_t cores = device::available_cores();
  const auto warning = [&](const std::map<std::string, std::string>& variables, std::int64_t threads) {
    const comm::JobVariables set(variables);
    std::string text;
    comm::Threads<>::run(1, {}, [&](comm::Threads<>& communicator) {
      comm::agree_on_cores(communicator);
      text = comm::cores_warning(1, threads);
      return 0;
    });
    return text;
  };
  const std::string has = message(cores), more = message(cores + 1);
  EXPECT_EQ(warning({}, 0), "");
  EXPECT_EQ(warning({}, cores), "");
  EXPECT_EQ(warning({{"SLURM_CPUS_PER_TASK", has}}, cores), "");
  {
    const comm::JobVariables set(std::map<std::string, std::string>{{"OMP_NUM_THREADS", "7"}});
    EXPECT_EQ(comm::planned_threads(0, 3), 7);
    EXPECT_EQ(comm::planned_threads(2, 3), 2);
  }
  const std::string text = warning(
      {{"SLURM_CPUS_PER_TASK", more}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}}, 1);
  EXPECT_EQ(text, message("a process of this run may run on ", has, cores == 1 ? " core" : " cores",
                          ", and the job requested ", more,
                          " for each process (SLURM_CPUS_PER_TASK); start it with srun --cpus-per-task=", more));
  EXPECT_EQ(warning({}, cores + 1), "") << "one warning in a process";
}

TEST(AgreeOnCores, CountsTheRanksThatShareThem) {
  comm::Threads<>::run(3, {}, [](comm::Threads<>& communicator) {
    comm::agree_on_cores(communicator);
    EXPECT_EQ(comm::cores_shared_by(3), (comm::SharedCores{.cores = device::available_cores(), .ranks = 3}));
    return 0;
  });
}

}  // namespace
}  // namespace fsdp::train
