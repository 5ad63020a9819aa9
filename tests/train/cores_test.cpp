// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/launch/cores.hpp>

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cpu.hpp>

namespace fsdp::train {
namespace {

using Texts = std::vector<std::string>;

TEST(SharedCores, AreThoseOfTheMaskAndOfTheRanksThatRunOnThem) {
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

TEST(SharedCores, AreNoMoreThanTheQuotaOfAllRanksOfTheHost) {
  const Texts bound{"1111", "00001111"};
  EXPECT_EQ(comm::shared_cores(bound, {}, 0, 6), (comm::SharedCores{.cores = 6, .ranks = 2}));
  EXPECT_EQ(comm::shared_cores(bound, {}, 0, 8), (comm::SharedCores{.cores = 4, .ranks = 1}));
  EXPECT_EQ(comm::shared_cores(bound, Texts{"a", "b"}, 1, 3), (comm::SharedCores{.cores = 3, .ranks = 1}));
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
