// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/rendezvous.hpp>

#include <algorithm>
#include <csignal>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>
#include <range/v3/view/zip.hpp>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include <support/errors.hpp>
#include "free_port.hpp"
#include "job_variables.hpp"

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;
using Bytes = std::vector<std::byte>;

using test::expect_parts;

using Variables = std::map<std::string, std::string>;
const Variables whole{{"RANK", "5"},         {"WORLD_SIZE", "8"},     {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"},
                      {"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};

Variables with(const std::string& name, const std::string& value) {
  Variables changed = whole;
  changed[name] = value;
  return changed;
}

TEST(TorchrunPlace, IsReadFromTheEnvironment) {
  {
    const JobVariables none({});
    EXPECT_FALSE(launched_by_torchrun());
    EXPECT_EQ(torchrun_place(), JobPlace{});
  }
  {
    const JobVariables all(whole);
    EXPECT_TRUE(launched_by_torchrun());
    EXPECT_EQ(torchrun_place(),
              (JobPlace{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .address = "n0", .port = 29500}));
  }
  {
    const JobVariables agent(with("TORCHELASTIC_USE_AGENT_STORE", "True"));
    EXPECT_EQ(torchrun_place().port, 29501);
  }
  {
    const JobVariables alone({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
    EXPECT_EQ(torchrun_place(), JobPlace{});
  }
}

TEST(TorchrunPlace, ReportsMissingVariables) {
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    const JobVariables variables(with(name, ""));
    expect_parts(test::error_of<InputError>([] { torchrun_place(); }),
                 {name, " is not set, but others of a job's variables are"});
  }
}

TEST(TorchrunPlace, RefusesMalformedOrContradictoryVariables) {
  const auto refusal = [](const std::string& name, const std::string& value) {
    const JobVariables variables(with(name, value));
    return test::error_of<InputError>([] { torchrun_place(); });
  };
  expect_parts(refusal("RANK", "one"), {"RANK is 'one'; it must be a number from 0"});
  expect_parts(refusal("WORLD_SIZE", "8 "), {"WORLD_SIZE is '8 '"});
  expect_parts(refusal("MASTER_PORT", "70000"), {"MASTER_PORT is '70000'; it must be a number from 1 to 65534"});
  expect_parts(refusal("RANK", "8"), {"RANK is 8, WORLD_SIZE 8"});
  expect_parts(refusal("LOCAL_RANK", "4"), {"LOCAL_RANK is 4, LOCAL_WORLD_SIZE 4"});
  expect_parts(refusal("LOCAL_WORLD_SIZE", "9"), {"LOCAL_WORLD_SIZE 9, WORLD_SIZE 8"});
}

TEST(DeviceIndex, IsTheLocalRankUnlessTheLauncherShowsOneDevice) {
  const JobPlace place{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4};
  const auto refusal = [&](int devices) { return test::error_of<InputError>([&] { device_index(place, devices); }); };
  {
    const JobVariables none({});
    EXPECT_EQ(device_index(place, 4), 1);
    for (int devices : {1, 2})
      expect_parts(refusal(devices), {"4 ranks run on this machine, which has ", std::to_string(devices)});
  }
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "SLURM_GPUS_PER_TASK"}) {
    const JobVariables shown(Variables{{name, "1"}});
    EXPECT_EQ(device_index(place, 1), 0);
    EXPECT_EQ(device_index(place, 4), 1);
    expect_parts(refusal(2), {"4 ranks run on this machine, which has 2 devices"});
  }
}

/// Connects to rank 0 as an unrelated client that does not know the protocol. Returns -1 if rank 0 does not listen yet.
int stranger_at(int port) {
  for (int tries = 0; tries < 500; ++tries) {
    const int stranger = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in at = loopback(port);
    if (connect(stranger, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0) return stranger;
    close(stranger);
    std::this_thread::sleep_for(milliseconds(5));
  }
  return -1;
}

Bytes bytes_of_rank(int rank) {
  Bytes bytes(128, std::byte(255));
  if (rank == 0) std::ranges::generate(bytes, [next = 0]() mutable { return static_cast<std::byte>(7 * next++); });
  return bytes;
}

/// Rendezvous of a test's ranks over its own port.
struct OverTcp {
  int port = free_port();
  void operator()(const Meeting& meeting, Bytes& bytes) const {
    rendezvous_over_tcp(meeting, "localhost", port, bytes);
  }
};
/// Runs each of `meetings` in a thread and returns their errors. Checks the bytes that ranks without an error received.
std::vector<std::string> meet(const OverTcp& over, const std::vector<Meeting>& meetings) {
  std::vector<std::string> refusals(meetings.size());
  std::vector<std::jthread> threads;
  for (const auto& [meeting, refusal] : ranges::views::zip(meetings, refusals))
    threads.emplace_back([&over, &meeting = meeting, &refusal = refusal] {
      Bytes bytes = bytes_of_rank(meeting.rank);
      refusal = test::error_of<InputError>([&] { over(meeting, bytes); });
      EXPECT_TRUE(!refusal.empty() || bytes == bytes_of_rank(0));
    });
  threads.clear();
  return refusals;
}

std::vector<Meeting> all_of(int size, milliseconds deadline = milliseconds(20'000)) {
  std::vector<Meeting> meetings;
  for (int rank = 0; rank < size; ++rank) meetings.push_back({.rank = rank, .size = size, .deadline = deadline});
  return meetings;
}

TEST(RendezvousOverTcp, SendsTheBytesOfRankZeroToAllRanks) {
  for (int size : {1, 2, 3, 8})
    EXPECT_EQ(meet(OverTcp(), all_of(size)), std::vector<std::string>(static_cast<std::size_t>(size)));
}

TEST(RendezvousOverTcp, CanReuseTheSamePort) {
  const OverTcp over;
  for (int round = 0; round < 5; ++round) EXPECT_EQ(meet(over, all_of(3)), std::vector<std::string>(3));
}

TEST(RendezvousOverTcp, ReportsRanksThatDoNotArrive) {
  const std::vector<std::string> refusals =
      meet(OverTcp(), {{.rank = 0, .size = 4, .deadline = milliseconds(300)}, {.rank = 2, .size = 4}});
  expect_parts(refusals[0], {"rank 1, rank 3 did not come within 0.300 s"});
  EXPECT_EQ(refusals[1], refusals[0]);
  const std::vector<std::string> with_problem = meet(
      OverTcp(), {{.rank = 0, .size = 4, .deadline = milliseconds(300)}, {.rank = 2, .size = 4, .problem = "no GPU"}});
  EXPECT_EQ(with_problem, std::vector<std::string>(2, "rank 2: no GPU")) << "the reason why the others may be missing";
}

TEST(RendezvousOverTcp, ReportsAProblemOfOneRankOnAllRanks) {
  const auto refusals_of = [](int rank, auto change) {
    std::vector<Meeting> meetings = all_of(4);
    for (Meeting& meeting : meetings) meeting.device = "GPU-" + std::to_string(meeting.rank);
    change(meetings[static_cast<std::size_t>(rank)]);
    return meet(OverTcp(), meetings);
  };
  for (int rank : {0, 2}) {
    EXPECT_EQ(refusals_of(rank, [](Meeting& of) { of.problem = "no device"; }),
              std::vector<std::string>(4, "rank " + std::to_string(rank) + ": no device"));
    const std::string pair = rank == 0 ? "rank 0 and rank 1" : "rank 1 and rank 2";
    for (const std::string& refusal : refusals_of(rank, [](Meeting& of) { of.device = "GPU-1"; }))
      EXPECT_EQ(refusal.find(pair + " use the same device, GPU-1; give every rank"), 0u) << refusal;
    EXPECT_EQ(refusals_of(rank, [](Meeting& of) { of.device = ""; }), std::vector<std::string>(4));
  }
  const std::string longer(2000, 'x');  // than a report has room for
  EXPECT_EQ(refusals_of(1, [&](Meeting& of) { of.problem = longer; })[3], "rank 1: " + sentence(longer, 1015));
  EXPECT_EQ(test::error_of<InputError>([] {
              Bytes bytes(1);
              rendezvous_over_tcp({.problem = "no device"}, "", 0, bytes);
            }),
            "no device");
}

TEST(RendezvousOverTcp, AcceptsARankAgainWhoseConnectionEnded) {
  const OverTcp over;
  std::vector<std::string> refusals;
  std::jthread rank_0([&] { refusals = meet(over, {{.rank = 0, .size = 3}}); });
  const pid_t killed = fork();
  if (killed == 0) {
    Bytes bytes(128);
    test::error_of<InputError>([&] { over({.rank = 1, .size = 3}, bytes); });
    _exit(0);
  }
  std::this_thread::sleep_for(milliseconds(200));  // it waits for rank 2 by now
  kill(killed, SIGKILL);
  waitpid(killed, nullptr, 0);
  EXPECT_EQ(meet(over, {{.rank = 1, .size = 3}, {.rank = 2, .size = 3}}), std::vector<std::string>(2));
  rank_0.join();
  EXPECT_EQ(refusals[0], "");
}

TEST(RendezvousOverTcp, TimesOutIfRankZeroDoesNotAnswer) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<std::string> refusals = meet(OverTcp(), {{.rank = 1, .size = 2, .deadline = milliseconds(200)}});
  expect_parts(refusals[0], {"rank 1 got no answer from rank 0 within 0.200 s"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(RendezvousOverTcp, RefusesARankOfAnotherJob) {
  const std::vector<std::string> refusals =
      meet(OverTcp(), {{.rank = 0, .size = 2, .deadline = milliseconds(300)}, {.rank = 1, .size = 3}});
  expect_parts(refusals[1], {"rank 1 expects 3 ranks and 128 bytes, rank 0 2 ranks"});
  expect_parts(refusals[0], {"rank 1 did not come"});
}

TEST(RendezvousOverTcp, ConnectsSeparateProcesses) {
  const OverTcp over;
  std::vector<pid_t> children;
  for (int rank = 1; rank < 4; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      Bytes bytes(128);
      const bool refused = !test::error_of<InputError>([&] { over({.rank = rank, .size = 4}, bytes); }).empty();
      _exit(refused || bytes != bytes_of_rank(0) ? 1 : 0);
    }
    children.push_back(child);
  }
  Bytes bytes = bytes_of_rank(0);
  EXPECT_EQ(test::error_of<InputError>([&] { over({.rank = 0, .size = 4}, bytes); }), "");
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
}

TEST(RendezvousOverTcp, IsNotDelayedByUnrelatedConnections) {
  const OverTcp over;
  std::vector<std::string> refusals;
  std::jthread rank_0([&] { refusals = meet(over, {{.rank = 0, .size = 2}}); });
  const int silent = stranger_at(over.port);
  const int loud = stranger_at(over.port);
  const std::string request = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  EXPECT_EQ(send(loud, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
  const int gone = stranger_at(over.port);
  close(gone);
  EXPECT_EQ(meet(over, {{.rank = 1, .size = 2}})[0], "");
  rank_0.join();
  EXPECT_EQ(refusals[0], "");
  char answer = 0;
  EXPECT_LE(recv(loud, &answer, 1, 0), 0) << "a stranger was answered";
  close(silent);
  close(loud);
}

TEST(RendezvousOverTcp, RefusesTheSameRankTwice) {
  const OverTcp over;
  const std::vector<std::string> refusals = meet(
      over, {{.rank = 0, .size = 3, .deadline = milliseconds(500)}, {.rank = 1, .size = 3}, {.rank = 1, .size = 3}});
  expect_parts(refusals[1] + refusals[2], {"somebody else is rank 1 already"});
  expect_parts(refusals[0], {"rank 2 did not come"});
}

TEST(RendezvousOverTcp, ReportsThatAnotherProgramAnswers) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = loopback();
  socklen_t length = sizeof at;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), length), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length);
  std::jthread other([&] {
    const int guest = accept(listener, nullptr, nullptr);
    const std::string greeting(100, 'x');
    EXPECT_GT(send(guest, greeting.data(), greeting.size(), 0), 0);
    char rest[100];
    EXPECT_GT(recv(guest, rest, sizeof rest, 0), 0);
    close(guest);
  });
  Bytes bytes(128);
  const int port = ntohs(at.sin_port);
  expect_parts(
      test::error_of<InputError>([&] { rendezvous_over_tcp({.rank = 1, .size = 2}, "127.0.0.1", port, bytes); }),
      {"what answers is not rank 0 of this job"});
  expect_parts(
      test::error_of<InputError>([&] { rendezvous_over_tcp({.rank = 0, .size = 2}, "127.0.0.1", port, bytes); }),
      {"rank 0 cannot listen at port ", "choose another MASTER_PORT"});
  close(listener);
}

TEST(RendezvousOverTcp, RefusesAnUnknownAddress) {
  Bytes bytes(128);
  expect_parts(
      test::error_of<InputError>([&] { rendezvous_over_tcp({.rank = 1, .size = 2}, "no such machine", 29500, bytes); }),
      {"no such machine:29500: the address is not known"});
}

}  // namespace
}  // namespace fsdp::comm
