// SPDX-License-Identifier: Apache-2.0
#include "src/fsdp/core/control_groups.hpp"

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp {
namespace {

TEST(QuotaOfCores, IsTheSmallestQuotaOfTheCgroupAndItsParents) {
  const test::TemporaryFolder root;
  EXPECT_EQ(quota_of_cores(root.path()), std::nullopt);
  root.write("proc/self/cgroup", "0::/a/b\n");
  EXPECT_EQ(quota_of_cores(root.path()), std::nullopt);
  root.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota_of_cores(root.path()), std::nullopt);
  root.write("sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota_of_cores(root.path()), 3);
  root.write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(quota_of_cores(root.path()), 1);
  root.write("sys/fs/cgroup/a/b/cpu.max", "0 0\n");
  EXPECT_EQ(quota_of_cores(root.path()), 3);
}

TEST(QuotaOfCores, IsReadFromCgroupVersion1Too) {
  const test::TemporaryFolder root;
  root.write("proc/self/cgroup", "4:memory:/x\n3:cpu,cpuacct:/x\n");
  root.write("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  root.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota_of_cores(root.path()), std::nullopt);
  root.write("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(quota_of_cores(root.path()), 4);
}

}  // namespace
}  // namespace fsdp
