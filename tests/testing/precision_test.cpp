// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/precision.hpp>

#include <gtest/gtest.h>

#include "failures.hpp"

namespace fsdp::testing {
namespace {

struct NarrowMain : Fp32 {
  using Main = bf16;
};
struct NarrowAccumulate : Bf16Mixed {
  using Accumulate = bf16;
};
struct IntegerWire : Bf16Mixed {
  using Reduce = std::int32_t;
};

TEST(PrecisionKit, FindsTypesThatNoStackSupports) {
  expect_failure([] { check_precision_types<NarrowMain>(); }, "Main and Accumulate are float", "the type Main", "bf16");
  expect_failure([] { check_precision_types<NarrowAccumulate>(); }, "Main and Accumulate are float",
                 "the type Accumulate", "bf16");
  expect_failure([] { check_precision_types<IntegerWire>(); }, "Reduce is float, bf16 or f16", "the type Reduce",
                 "i32");
}

TEST(PrecisionKit, FindsMainWeightsWithTooLowPrecision) {
  expect_failure([] { check_weights_survive<NarrowMain>(); }, "the same after it was kept in Main",
                 "Compute f32, Main bf16", " becomes ");
}

TEST(PrecisionKit, FindsGradientsWithTooLowPrecision) {
  expect_failure([] { check_gradients_keep_their_digits<NarrowAccumulate>(); }, "as float is",
                 "Accumulate bf16, Reduce f32", " times the bound");
  expect_failure([] { check_gradients_keep_their_digits<IntegerWire>(); }, "loses at most 1/256", "Reduce i32",
                 "is sent as 0");
}

}  // namespace
}  // namespace fsdp::testing
