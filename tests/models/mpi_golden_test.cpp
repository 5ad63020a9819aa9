// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <comm/mpi_world.hpp>
#include <models/golden_check.hpp>
#include <support/stacks/mpi_runners.hpp>

namespace fsdp::test {
namespace {

class Golden20StepsOverMpi : public ::testing::TestWithParam<std::string_view> {};

/// Each tiling is combined with one number of micro-batches; all combinations are run on threads.
TEST_P(Golden20StepsOverMpi, MatchPyTorch) {
  for (const auto& [name, clip] : golden_folders) {
    const Golden golden(name);
    for (const auto& [tiling_name, tiling, micro_batches] : golden_tilings()) {
      SCOPED_TRACE(message(name, ", ", micro_batches, " micro-batches, tiling ", tiling_name));
      RunOptions options = golden.options(comm::mpi_world().size(), micro_batches, tiling, clip);
      if (micro_batches == 1) options.logits_of = golden.windows;
      options.begun = 3;
      expect_golden(run_mpi(GetParam(), options), golden);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Golden20StepsOverMpi, ::testing::ValuesIn(strategies),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace fsdp::test
