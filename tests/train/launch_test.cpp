// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/launch.hpp>

#include <atomic>
#include <functional>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/threads.hpp>

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

/// Two ranks, of which the second throws.
template <class Error>
int throws() {
  return launch<Comm>({.ranks = 2}, [](Comm& communicator) {
    if (communicator.rank() == 1) throw Error("data.txt: no such file");
    communicator.barrier();
  });
}

TEST(Launch, ReturnsTheStatusOfItsRanks) {
  std::atomic<int> ranks = 0;
  EXPECT_EQ(launch<Comm>({.ranks = 2}, [&](Comm&) { ++ranks; }), ExitStatus::done);
  EXPECT_EQ(ranks, 2);
  EXPECT_EQ(launch<Comm>({.ranks = 2}, [](Comm&) { return 143; }), 143);
}

TEST(Launch, AnErrorIsOneLineAndItsStatus) {
  const std::string line = "tessera: data.txt: no such file\n";
  EXPECT_EQ(ended(throws<InputError>), (Ended{ExitStatus::bad_input, line}));
  EXPECT_EQ(ended(throws<DivergedError>), (Ended{ExitStatus::lost, line}));
  EXPECT_EQ(ended(throws<std::runtime_error>), (Ended{ExitStatus::failed, line}));
}

TEST(Launch, AnExceptionOfUnknownTypeIsOneLineAndItsStatus) {
  const Ended seven = ended([] { return launch<Comm>({.ranks = 2}, [](Comm&) -> int { throw 7; }); });
  EXPECT_EQ(seven, (Ended{ExitStatus::failed,
                          "tessera: ended by an exception that is no std::exception; throw "
                          "fsdp::Error, which says what happened\n"}));
}

TEST(Launch, RanksThatCannotBeStartedAreBadInput) {
  const Ended none = ended([] { return launch<Comm>({.ranks = 0}, [](Comm&) {}); });
  EXPECT_EQ(none.status, ExitStatus::bad_input);
  EXPECT_TRUE(none.said.starts_with("tessera: --ranks 0: a program starts 1 to ")) << none.said;
  // Each number, though no flag was read.
  EXPECT_THROW(validate(LaunchOptions{.threads = -1}), InputError);
  EXPECT_THROW(validate(LaunchOptions{.deadline_seconds = 0}), InputError);
  EXPECT_THROW(validate(LaunchOptions{.device_deadline_seconds = -1}), InputError);
  EXPECT_THROW(validate(LaunchOptions{.disk_deadline_seconds = 0}), InputError);
  EXPECT_NO_THROW(validate(LaunchOptions()));
}

TEST(Launch, InsideAProgramThrowsAndTheProgramPrints) {
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

}  // namespace
}  // namespace fsdp::train
