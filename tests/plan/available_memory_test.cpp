// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/plan.hpp>

#include <gtest/gtest.h>

#include "support/temporary_folder.hpp"

namespace fsdp::plan {
namespace {

using test::TemporaryFolder;

TEST(AvailableMemory, IsTheSystemsIfNoCgroupLimitsIt) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "MemTotal:  9000 kB\nMemFree:   10 kB\nMemAvailable:    4000 kB\n");
  EXPECT_EQ(available_memory(root.path()), 4000 * 1024);
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "5\n");
  EXPECT_EQ(available_memory(root.path()), 4000 * 1024);
}

TEST(AvailableMemory, IsTheRestOfTheTightestCgroupIncludingPageCache) {
  const TemporaryFolder root;
  root.write("proc/meminfo", "MemAvailable: 4000 kB\n");
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "90000\n");
  root.write("sys/fs/cgroup/a/b/memory.current", "50000\n");
  EXPECT_EQ(available_memory(root.path()), 40000);
  root.write("sys/fs/cgroup/a/b/memory.stat", "anon 7\ninactive_file 1000\nactive_file 3\n");
  EXPECT_EQ(available_memory(root.path()), 41000);
  root.write("sys/fs/cgroup/a/memory.max", "60000\n");
  root.write("sys/fs/cgroup/a/memory.current", "55000\n");
  EXPECT_EQ(available_memory(root.path()), 5000);
}

TEST(AvailableMemory, SupportsCgroupV1AndNamespacedContainers) {
  const TemporaryFolder root;
  root.write("proc/self/cgroup", "5:cpu,memory:/outside/name\n4:pids:/x\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "70000\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "60000\n");
  root.write("sys/fs/cgroup/memory/memory.stat", "cache 9\ntotal_inactive_file 500\n");
  EXPECT_EQ(available_memory(root.path()), 10500);
}

TEST(AvailableMemory, IsAnErrorThatRequestsTheFlagIfUnknown) {
  const TemporaryFolder root;
  EXPECT_INPUT_ERROR(available_memory(root.path()), "give --memory");
  EXPECT_GT(available_memory(), 0);
}

}  // namespace
}  // namespace fsdp::plan
