// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/peer_watch.hpp>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/poll.hpp>
#include <tessera/comm/rendezvous.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "free_port.hpp"

namespace fsdp::comm {
namespace {

using std::chrono::milliseconds;
using Watches = std::vector<std::shared_ptr<PeerWatch>>;

/// Returns the watches of three ranks that have met.
Watches three_ranks() {
  const int port = free_port();
  std::vector<std::future<std::shared_ptr<PeerWatch>>> meetings;
  for (int rank = 0; rank < 3; ++rank)
    meetings.push_back(std::async(std::launch::async, [=] {
      std::vector<std::byte> bytes(8);
      return rendezvous_over_tcp({.rank = rank, .size = 3}, "localhost", port, bytes);
    }));
  Watches watches;
  for (auto& meeting : meetings) watches.push_back(meeting.get());
  return watches;
}

/// Waits until all remaining ranks have heard of that failure.
void expect_heard(const Watches& watches, const std::string& failure) {
  for (const auto& watch : watches)
    if (watch != nullptr) {
      EXPECT_TRUE(poll_until(Clock::now() + std::chrono::seconds(10), [&] { return watch->has_failure(); }));
      EXPECT_EQ(watch->failure(), failure);
    }
}

TEST(PeerWatch, AllOtherRanksHearThatARankFailedAndWhy) {
  for (std::size_t lost = 0; lost < 3; ++lost)
    for (const bool reports : {true, false}) {
      Watches watches = three_ranks();
      std::shared_ptr<PeerWatch> ended = std::move(watches[lost]);
      if (reports) ended->report("no space is left");
      if (!reports) ended.reset();
      expect_heard(watches, message("rank ", lost, " failed: ",
                                    reports ? "no space is left" : "its process ended without an error message"));
    }
}

TEST(PeerWatch, ALongReasonLosesItsMiddleBetweenCharacters) {
  std::string path = "/";
  for (int i = 0; i < 400; ++i) path += "\u00fc";
  for (const std::string& reason : {path + ": is the disk full?", "/" + path + ": is the disk full?"}) {
    const Watches watches = three_ranks();
    watches[1]->report(reason);
    expect_heard({watches[0], watches[2]}, sentence("rank 1 failed: " + reason, 511));
  }
}

TEST(PeerWatch, TheFirstFailureCounts) {
  Watches watches = three_ranks();
  watches[1]->report("first");
  expect_heard({watches[0], watches[2]}, "rank 1 failed: first");
  watches[2]->report("a consequence");
  watches[2].reset();
  expect_heard({watches[0]}, "rank 1 failed: first");
  EXPECT_EQ(watches[1]->failure(), "");
}

TEST(PeerWatch, ARankThatLeavesHasNotFailed) {
  Watches watches = three_ranks();
  watches[2]->leave({});
  watches[2].reset();
  auto rank_0 = std::async(std::launch::async, [&] { watches[0]->leave(std::chrono::seconds(10)); });
  EXPECT_EQ(rank_0.wait_for(milliseconds(100)), std::future_status::timeout) << "rank 1 may still fail";
  EXPECT_FALSE(watches[1]->has_failure());
  watches[1]->leave({});
  watches[1].reset();
  EXPECT_EQ(rank_0.wait_for(std::chrono::seconds(5)), std::future_status::ready);
}

TEST(PeerWatch, CallsTheFunctionOfABlockedHostTwoSecondsAfterAFailure) {
  Watches watches = three_ranks();
  std::promise<void> called;
  watches[0]->when_blocked([&] {
    watches[0].reset();  // the last owner
    called.set_value();
  });
  watches[1].reset();
  EXPECT_EQ(called.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

TEST(PeerWatch, TheFunctionOfABlockedHostMayDropTheLastReference) {
  Watches watches = three_ranks();
  std::promise<void> dropped;
  watches[0]->when_blocked([&] {
    watches[0].reset();
    dropped.set_value();
  });
  watches[1].reset();
  EXPECT_EQ(dropped.get_future().wait_for(std::chrono::seconds(10)), std::future_status::ready);
}

}  // namespace
}  // namespace fsdp::comm
