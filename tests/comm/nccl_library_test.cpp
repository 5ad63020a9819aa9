// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/nccl_table.hpp>

#include <string>

#include <gtest/gtest.h>

namespace fsdp::comm::nccl {
namespace {

TEST(NcclLibrary, IsLinkedAndFillsTheFunctionTable) {
  const Table& table = library();
  EXPECT_GE(table.version(), 21800);
  EXPECT_EQ(std::string(table.error_string(Result::success)), "no error");
  EXPECT_NE(std::string(table.error_string(Result::in_progress)), "no error");
  EXPECT_NE(table.call, nullptr);
  EXPECT_EQ(table.mem_alloc != nullptr, table.version() >= 21900);
}

}  // namespace
}  // namespace fsdp::comm::nccl
