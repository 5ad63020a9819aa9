// SPDX-License-Identifier: Apache-2.0
// Which settings of NCCL the promises of Nccl need: one order of launches for several axes, and NVLS off for sums of
// its own. Communicators of a host program, which makes these settings itself.
#include <tessera/comm/nccl.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/mesh.hpp>
#include <tessera/comm/threads.hpp>

#include <support/errors.hpp>
#include <support/nccl/queued.hpp>

namespace fsdp::comm::promises {
namespace {

using Fake = testing::FakeQueuedNccl;
using Ranks = Nccl<testing::QueuedCpu>;
using nccl::LaunchOrder;
using nccl::Nvls;
using nccl::Settings;
using testing::NcclSumOrder;

class NcclPromises : public ::testing::Test {
 protected:
  Fake& fake = Fake::instance();
  void TearDown() override {
    fake.sums = NcclSumOrder::in_fixed_order;
    fake.version = 22809;
    EXPECT_EQ(Fake::problems, std::vector<std::string>{});
    EXPECT_TRUE(Fake::held.empty());
  }
  /// Calls f(communicator, host's communicator) on every rank of a host program that has initialised NCCL.
  static void run_adopted(int ranks, const auto& settings_of, const auto& f) {
    const nccl::Id id = nccl::make_id(Fake::table());
    Threads<>::run(ranks, {}, [&](auto& threads) {
      nccl::Comm host = nullptr;
      nccl::Result state = nccl::Result::in_progress;
      Fake::table().init(host, ranks, id, threads.rank());
      while (state == nccl::Result::in_progress) Fake::table().async_error(host, state);
      try {
        Ranks communicator = Ranks::adopt(Fake::table(), host, settings_of(threads.rank()), {});
        f(communicator, host);
      } catch (const GivenUp&) {
      }
      barrier(threads);
      EXPECT_EQ(Fake::held["communicators"], ranks) << "the host's communicators remain, and no others";
      Fake::table().async_error(host, state);
      EXPECT_EQ(state, nccl::Result::success);
      barrier(threads);
      Fake::table().destroy(host);
    });
  }
  struct GivenUp {};
};

constexpr auto implicit = [](int) { return testing::QueuedNccl::settings; };
constexpr auto unknown = [](int) { return Settings{}; };

TEST_F(NcclPromises, AnAdoptedCommunicatorWorksOnADuplicate) {
  run_adopted(4, implicit, [](Ranks& c, nccl::Comm) {
    Mesh<Ranks, 2> mesh(c, 2);
    EXPECT_EQ(sum_over_ranks(mesh.shard_axis(), c.rank()), c.rank() / 2 * 4 + 1);
    EXPECT_EQ(c.monitor().library, "NCCL 2.28.9");
    EXPECT_EQ(c.monitor().lost_promise, "");
  });
}

TEST_F(NcclPromises, AFailureAbortsOnlyTheDuplicate) {
  for (const bool of_nccl : {false, true})
    run_adopted(2, unknown, [&](Ranks& c, nccl::Comm) {
      barrier(c);
      if (!of_nccl) throw GivenUp();
      fake.fail(c.rank(), nccl::Result::internal_error);
      EXPECT_THROW(barrier(c), CollectiveError);
      fake.fail(c.rank(), nccl::Result::success);
    });
}

TEST_F(NcclPromises, AdoptRefusesANullCommunicator) {
  EXPECT_INPUT_ERROR(Ranks::adopt(Fake::table(), nullptr, {}, {}), "communicator to adopt is null");
}

TEST_F(NcclPromises, SeveralAxesNeedOneOrderOfLaunchesOnEveryRank) {
  const auto only_rank_1 = [](LaunchOrder order) {
    return [order](int rank) { return Settings{.launch_order = rank == 1 ? order : LaunchOrder::implicit}; };
  };
  const auto expect_refused = [](const auto& settings_of, const std::string& reason) {
    run_adopted(4, settings_of, [&](Ranks& c, nccl::Comm) {
      EXPECT_INPUT_ERROR((Mesh<Ranks, 2>(c, 2)),
                         "needs one order of launches for all its NCCL communicators, and on "
                         "rank " +
                             reason);
    });
  };
  expect_refused(unknown, "0 the host program has not passed it; set NCCL_LAUNCH_ORDER_IMPLICIT=1");
  expect_refused(only_rank_1(LaunchOrder::unknown), "1 the host program");
  expect_refused(only_rank_1(LaunchOrder::none), "1 NCCL reads NCCL_LAUNCH_ORDER_IMPLICIT as 0; unset it");
  fake.version = 22507;
  expect_refused(implicit, "0 NCCL is 2.25.7, and the first with that order is 2.26; update NCCL");
  run_adopted(1, unknown, [](Ranks& c, nccl::Comm) { Mesh<Ranks, 2>(c, 1); });  // one rank waits for no other
}

TEST_F(NcclPromises, ReportsWhichPromiseIsLostUnlessNvlsIsOff) {
  for (const auto& [nvls, reason] :
       {std::pair(Nvls::unknown, "has not passed .nvls = off"), std::pair(Nvls::allowed, "NCCL_NVLS_ENABLE is not 0")})
    run_adopted(
        2, [nvls = nvls](int) { return Settings{.nvls = nvls}; },
        [reason = reason](Ranks& c, nccl::Comm) {
          test::expect_parts(c.monitor().lost_promise, {reason, "last bits"});
        });
  run_adopted(1, unknown, [](Ranks& c, nccl::Comm) { EXPECT_EQ(c.monitor().lost_promise, ""); });
}

/// Adds 0.1, 1e8 and others by reduce_scatter or, for Wire bf16 with `everywhere`, by all_reduce. Returns rank 0's
/// sums.
template <class Wire>
std::vector<float> sums(SumOrder order, bool everywhere = false) {
  std::vector<float> found;
  testing::QueuedNccl::run(5, {}, [&](Ranks& c) {
    const std::vector<std::int64_t> counts(5, 64);
    std::vector<float> full(320), local(64);
    for (std::size_t i = 0; i < full.size(); ++i)
      full[i] = std::array{0.1f, 1e8f, -1e8f, 0.3f, 1e-3f}[(static_cast<std::size_t>(c.rank()) + i) % 5];
    float* const mine = everywhere ? full.data() + 64 * c.rank() : local.data();
    const std::vector<Segment<float>> segments{{mine, full.data(), counts}};
    if (everywhere)
      all_reduce<Wire>(c, segments).wait();
    else
      reduce_scatter<Wire>(c, segments, Write::overwrite, {}, Contributions::kept, order).wait();
    if (c.rank() == 0) found.assign(mine, mine + 64);
  });
  return found;
}

/// Contributions that are rounded or requested in rank order are added here, whatever NCCL does.
TEST_F(NcclPromises, SumsInRankOrderAreBitIdenticalUnderAnySettings) {
  const auto all = [] {
    return std::array{sums<float>(SumOrder::ranks), sums<bf16>(SumOrder::any), sums<bf16>(SumOrder::any, true)};
  };
  fake.sums = NcclSumOrder::in_rank_order;
  const auto expected = all();
  EXPECT_EQ(expected[0], sums<float>(SumOrder::any));
  for (const auto order : {NcclSumOrder::in_fixed_order, NcclSumOrder::in_changing_order}) {
    fake.sums = order;
    EXPECT_EQ(all(), expected);
  }
}

TEST_F(NcclPromises, OtherFloatSumsAreBitIdenticalFromRunToRunWithoutNvls) {
  for (const bool everywhere : {false, true}) {
    fake.sums = NcclSumOrder::in_rank_order;
    const auto in_rank_order = sums<float>(SumOrder::any, everywhere);
    fake.sums = NcclSumOrder::in_fixed_order;
    const auto fixed = sums<float>(SumOrder::any, everywhere);
    EXPECT_NE(fixed, in_rank_order) << "no promise over backends";
    EXPECT_EQ(sums<float>(SumOrder::any, everywhere), fixed);
    fake.sums = NcclSumOrder::in_changing_order;
    std::set<std::vector<float>> found;
    for (int i = 0; i < 8; ++i) found.insert(sums<float>(SumOrder::any, everywhere));
    EXPECT_GT(found.size(), 1u);
  }
}

using Variables = std::map<std::string, std::string>;

/// Prints the settings that a new process has with these variables, and ends it.
[[noreturn]] void print_settings(const Variables& variables, bool fast) {
  for (const char* name : {"NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_NVLS_ENABLE", "NCCL_ALGO", "NCCL_CTA_POLICY"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  const Settings found = nccl::set_environment(fast);
  std::fprintf(stderr, "<%s> order %d nvls %d\n", found.text.c_str(), static_cast<int>(found.launch_order),
               static_cast<int>(found.nvls));
  std::exit(0);
}

TEST(NcclEnvironment, SetsWhatTheUserHasNotSetAndReportsTheRest) {
  const struct {
    Variables variables;
    bool fast;
    const char* expected;
  } cases[] = {
      {{}, false, "<NCCL_LAUNCH_ORDER_IMPLICIT=1, NCCL_NVLS_ENABLE=0> order 2 nvls 2"},
      {{}, true, "<NCCL_LAUNCH_ORDER_IMPLICIT=1> order 2 nvls 1"},
      {{{"NCCL_NVLS_ENABLE", ""}}, false, "<NCCL_LAUNCH_ORDER_IMPLICIT=1, NCCL_NVLS_ENABLE=0> order 2 nvls 2"},
      {{{"NCCL_NVLS_ENABLE", "0"}}, true, "NCCL_NVLS_ENABLE=0 \\(set by the user\\)> order 2 nvls 2"},
      {{{"NCCL_NVLS_ENABLE", "2"}}, false, "NCCL_NVLS_ENABLE=2 \\(set by the user\\)> order 2 nvls 1"},
      {{{"NCCL_LAUNCH_ORDER_IMPLICIT", "0"}}, false, "<NCCL_LAUNCH_ORDER_IMPLICIT=0 \\(set by the user\\),.* order 1"},
      {{{"NCCL_ALGO", "Ring"}, {"NCCL_CTA_POLICY", "1"}},
       false,
       "NCCL_NVLS_ENABLE=0, NCCL_ALGO=Ring \\(set by the user\\), NCCL_CTA_POLICY=1 \\(set by the user\\)>"},
  };
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process in which nothing was set before
  for (const auto& [variables, fast, expected] : cases)
    EXPECT_EXIT(print_settings(variables, fast), ::testing::ExitedWithCode(0), expected);
  EXPECT_EXIT(
      {
        nccl::set_environment(false);
        try {
          nccl::set_environment(true);
        } catch (const InputError& error) {
          std::fprintf(stderr, "%s\n", error.what());
          std::exit(2);
        }
      },
      ::testing::ExitedWithCode(2), "has set NCCL_NVLS_ENABLE=0 for an earlier job");
}

}  // namespace
}  // namespace fsdp::comm::promises
