// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/signals.hpp>

#include <tessera/comm/launch/launch.hpp>

#include <chrono>
#include <csignal>
#include <thread>

#include <gtest/gtest.h>

// A common name that a host program may define: if the library exported it too, this would not link.
extern "C" void on_signal(int) {}

namespace fsdp::comm {
namespace {

TEST(CatchSignals, RecordsSignalsDuringItsLifetime) {
  {
    const CatchSignals signals, of_another_rank;
    EXPECT_EQ(signals.asked(), SignalRequests{});
    std::raise(SIGUSR1);
    std::raise(SIGUSR1);
    EXPECT_EQ(signals.asked(), (SignalRequests{.stop = 0, .saves = 2}));
    std::raise(SIGINT);
    EXPECT_EQ(of_another_rank.asked(), (SignalRequests{.stop = SIGINT, .saves = 2}));
  }
  const CatchSignals fresh;
  EXPECT_EQ(fresh.asked(), SignalRequests{});
}

TEST(CatchSignalsDeathTest, ASecondStopAfterOneSecondExitsAtOnce) {
  EXPECT_EXIT(
      {
        CatchSignals signals{CatchSignals::Later()};
        signals.catch_stops("ends after this step");
        std::raise(SIGTERM);
        std::raise(SIGTERM);  // counted as one request: a terminal and a launcher each send one
        std::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1010));
        std::raise(SIGINT);
      },
      ::testing::ExitedWithCode(128 + SIGINT), "^tessera: SIGTERM: ends after this step\n$");
}

TEST(CatchSignalsDeathTest, StopSignalsKillTheProcessUntilTheyAreCaught) {
  EXPECT_EXIT(
      {
        const CatchSignals signals{CatchSignals::Later()};
        std::raise(SIGUSR1);
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "^$");
  CatchSignals signals{CatchSignals::Later()};
  signals.catch_stops();
  std::raise(SIGTERM);
  EXPECT_EQ(signals.asked().stop, SIGTERM);
}

TEST(CatchSignals, TheFirstStopSignalIsReported) {
  const CatchSignals signals;
  EXPECT_NO_THROW(signals.throw_if_stopped("nothing is kept"));
  std::raise(SIGHUP);
  std::raise(SIGHUP);
  signals.ask_to_stop(SIGPIPE);
  std::raise(SIGTERM);  // the first signal that does not come from a lost terminal
  EXPECT_EQ(signals.asked().stop, SIGHUP);
  try {
    signals.throw_if_stopped("nothing is kept");
    FAIL();
  } catch (const StoppedError& error) {
    EXPECT_STREQ(error.what(), "SIGHUP: nothing is kept");
    EXPECT_EQ(exit_status_of(error), 128 + SIGHUP);
  }
}

TEST(CatchSignals, KeepsAnIgnoredHangUpIgnoredAndIgnoresBrokenPipes) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const CatchSignals signals;
    std::raise(SIGHUP);
    EXPECT_EQ(signals.asked(), SignalRequests{});
    std::raise(SIGPIPE);  // ignored during the lifetime of `signals`
  }
  EXPECT_EQ(std::signal(SIGHUP, SIG_DFL), SIG_IGN);
  EXPECT_EQ(std::signal(SIGPIPE, SIG_DFL), SIG_DFL);
}

TEST(CatchSignalsDeathTest, RestoresTheDefaultActionAtTheEnd) {
  EXPECT_EXIT(
      {
        { const CatchSignals signals; }
        std::raise(SIGTERM);
      },
      ::testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace fsdp::comm
