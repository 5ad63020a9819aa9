// SPDX-License-Identifier: Apache-2.0
// The kit's suite over a loop that needs tessera::sharding alone.
#include <gtest/gtest.h>

#include <tessera/fsdp/testing/foreign_loop.hpp>

#include "../../foreign/wrong_loops.hpp"

namespace fsdp::testing {

INSTANTIATE_TYPED_TEST_SUITE_P(Consumers, ForeignLoopSuite, foreign::FlawedLoop);

}  // namespace fsdp::testing
