// SPDX-License-Identifier: Apache-2.0
/// @file
/// The suite of a precision policy: its four types are precise enough for training.
///
///     using namespace fsdp::testing;
///     INSTANTIATE_TYPED_TEST_SUITE_P(Mine, PrecisionSuite, mine::Precision);
///
/// Stack checks whether the device computes in Compute and the communicator reduces in Reduce.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <typeinfo>

#include <gtest/gtest.h>

#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/precision/policies.hpp>
#include <tessera/fsdp/testing/report.hpp>

namespace fsdp::testing {

/// Returns an element type's name: "bf16".
template <class T>
std::string type_in_words() {
  if constexpr (Element<T>)
    return std::string(name_of(dtype_of<T>()));
  else
    return std::string("a type that tensors do not have, ") + typeid(T).name();
}

/// Returns the largest relative error of rounding to T. For types that are not wire types, returns that of bf16, the
/// narrowest wire type.
template <class T>
constexpr double rounding_of() {
  if constexpr (std::is_same_v<T, float>)
    return 0x1p-24;
  else if constexpr (std::is_same_v<T, f16>)
    return 0x1p-11;
  else
    return 0x1p-8;
}

/// Checks that a Stack accepts the types.
template <class P>
void check_precision_types() {
  static_assert(check_precision<P>());
  constexpr std::string_view asked =
      "a Stack takes precision policies whose Main and Accumulate are float (optimizers and the matmuls of gradients "
      "work in it), and whose Reduce is float, bf16 or f16";
  const auto expect = [&](bool holds, std::string_view role, const std::string& type) {
    if (!holds) fail(asked, message("the type ", role), type);
  };
  expect(std::is_same_v<typename P::Main, float>, "Main", type_in_words<typename P::Main>());
  expect(std::is_same_v<typename P::Accumulate, float>, "Accumulate", type_in_words<typename P::Accumulate>());
  expect(Real<typename P::Reduce>, "Reduce", type_in_words<typename P::Reduce>());
}

/// Checks that weights survive conversion: all values of a 16-bit type, and every 65537th float.
template <class P>
void check_weights_survive() {
  using Compute = typename P::Compute;
  using Main = typename P::Main;
  using Bits = std::conditional_t<sizeof(Compute) == 2, std::uint16_t, std::uint32_t>;
  constexpr std::uint64_t step = sizeof(Compute) == 2 ? 1 : 65537;
  for (std::uint64_t bits = 0; bits <= std::numeric_limits<Bits>::max(); bits += step) {
    const auto value = std::bit_cast<Compute>(static_cast<Bits>(bits));
    if (!std::isfinite(static_cast<float>(value))) continue;
    const auto back = static_cast<Compute>(static_cast<float>(static_cast<Main>(static_cast<float>(value))));
    if (!same_bits(value, back))
      return void(
          fail("a weight in Compute is the same after it was kept in Main: checkpoints and steps that change nothing "
               "must not change the model",
               message("Compute ", type_in_words<Compute>(), ", Main ", type_in_words<Main>()), in_words(value),
               " becomes ", in_words(back)));
  }
}

/// Returns number `i` of a sequence whose magnitudes vary as those of gradients do. All are multiples of 2^-23, which
/// f16 can represent.
inline float gradient(std::uint32_t i) {
  const std::uint32_t hash = (i + 1) * 2654435761u;
  return (static_cast<float>(hash & 0xffffu) / 65536.0f - 0.25f) / static_cast<float>(1u << (hash >> 29));
}

/// Checks the rounding of single values, and of sums of as many values as there may be ranks and micro-batches.
template <class P>
void check_gradients_keep_their_digits() {
  using Accumulate = typename P::Accumulate;
  using Reduce = typename P::Reduce;
  constexpr double lost = rounding_of<Reduce>();
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const float value = gradient(i);
    const double sent = static_cast<double>(static_cast<float>(static_cast<Reduce>(value)));
    if (std::abs(sent - value) > lost * std::abs(value)) {
      fail(message("a gradient that is rounded to Reduce loses at most 1/", 1 / lost, " of itself"),
           message("Reduce ", type_in_words<Reduce>()), in_words(value), " is sent as ", in_words(sent));
      break;
    }
  }
  for (const std::uint32_t count : {2u, 64u, 4096u}) {
    Accumulate total{};
    double exact = 0;
    double magnitude = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      const auto sent = static_cast<Reduce>(gradient(i));
      const auto value = static_cast<float>(sent);
      total = static_cast<Accumulate>(static_cast<float>(total) + value);
      exact += value;
      magnitude += std::abs(value);
    }
    const double error = std::abs(static_cast<double>(static_cast<float>(total)) - exact);
    const double bound = count * rounding_of<float>() * magnitude;
    if (error > bound) {
      fail(
          "a sum of gradients in Accumulate is as near to the sum in float64 as float is: within (number of addends) "
          "* 2^-24 * (sum of their magnitudes)",
          message(count, " addends, Accumulate ", type_in_words<Accumulate>(), ", Reduce ", type_in_words<Reduce>()),
          "the error is ", error, ", ", error / bound, " times the bound");
      break;
    }
  }
}

template <class P>
class PrecisionSuite : public ::testing::Test {};

FSDP_SUITE(PrecisionSuite, (HasTypesThatAStackTakes, check_precision_types<TypeParam>()),
           (KeepsWeightsFromComputeToMainAndBack, check_weights_survive<TypeParam>()),
           (KeepsTheDigitsOfGradients, check_gradients_keep_their_digits<TypeParam>()));

}  // namespace fsdp::testing
