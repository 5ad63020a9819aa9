// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/precision/policies.hpp>

#include <gtest/gtest.h>

#include <tessera/fsdp/testing/precision.hpp>

namespace fsdp {
namespace {

struct WithoutAccumulate {
  using Compute = bf16;
  using Main = float;
  using Reduce = float;
  [[maybe_unused]] static constexpr std::string_view name = "without";
};

/// A compute type that has no matmul.
struct DoubleCompute : Fp32 {
  using Compute = double;
};

/// A user-defined policy: everything is bf16 except the optimizer's main weights.
struct NarrowGradients {
  using Compute = bf16;
  using Main = float;
  using Accumulate = bf16;
  using Reduce = bf16;
  [[maybe_unused]] static constexpr std::string_view name = "narrow";
};

static_assert(check_precision<Fp32>() && check_precision<Bf16Mixed>() && check_precision<NarrowGradients>());
static_assert(!Precision<int> && !Precision<WithoutAccumulate> && !Precision<DoubleCompute>);

template <class P, class Compute, class Main, class Accumulate, class Reduce>
inline constexpr bool has_types =
    std::is_same_v<typename P::Compute, Compute>&& std::is_same_v<typename P::Main, Main>&&
        std::is_same_v<typename P::Accumulate, Accumulate>&& std::is_same_v<typename P::Reduce, Reduce>;

static_assert(has_types<Fp32, float, float, float, float>);
static_assert(has_types<Bf16Mixed, bf16, float, float, float>, "the default: only what is computed with is narrow");

TEST(Precision, NamesMatchTheFlagsOfTheProgram) {
  EXPECT_EQ(Fp32::name, "fp32");
  EXPECT_EQ(Bf16Mixed::name, "bf16");
}

}  // namespace
}  // namespace fsdp

namespace fsdp::testing {

using PrecisionPolicies = ::testing::Types<Fp32, Bf16Mixed, Fp16Mixed, Bf16Wire<Fp32>, Bf16Wire<Bf16Mixed>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Policies, PrecisionSuite, PrecisionPolicies);

}  // namespace fsdp::testing
