// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/core/error.hpp>

#include <stdexcept>
#include <string>
#include <type_traits>

#include <gtest/gtest.h>

#include <support/temporary_folder.hpp>

namespace fsdp {
namespace {

template <class E>
inline constexpr bool in_family = std::is_base_of_v<Error, E>&& std::is_base_of_v<std::runtime_error, E>;
static_assert(in_family<InputError> && in_family<LogicError> && in_family<MemoryError>);
static_assert(!std::is_base_of_v<InputError, LogicError> && !std::is_base_of_v<LogicError, InputError>);

TEST(Require, DoesNothingIfTheConditionIsTrue) { EXPECT_NO_THROW(require(true, "never said")); }

TEST(Require, JoinsItsArgumentsIntoOneMessage) {
  EXPECT_EQ(test::input_error_of([] { require<InputError>(false, "heads ", 6, " by ", 4.5, std::string(": no")); }),
            "heads 6 by 4.5: no");
}

TEST(Require, ThrowsALogicErrorByDefault) {
  EXPECT_THROW(require(false, "a bug"), LogicError);
  EXPECT_THROW(require<MemoryError>(false, "full"), MemoryError);
}

}  // namespace
}  // namespace fsdp
