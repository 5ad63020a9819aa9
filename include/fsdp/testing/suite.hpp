// SPDX-License-Identifier: Apache-2.0
/// @file
/// Typed GoogleTest suites whose tests are listed once, each with its name and its body.
#pragma once

#include <gtest/gtest.h>

/// FSDP_SUITE(ModuleSuite, (NamesItsParameters, check_module_parameters<TypeParam>()), ...) defines and registers the
/// tests of a class template, for INSTANTIATE_TYPED_TEST_SUITE_P. A suite may remain without instances, since its
/// checks can be called individually.
#define FSDP_SUITE(...) FSDP_SUITE_TESTS(__VA_ARGS__)
#define FSDP_SUITE_TESTS(suite, ...)                    \
  TYPED_TEST_SUITE_P(suite);                            \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite); \
  FSDP_EACH(FSDP_SUITE_TEST, suite, __VA_ARGS__)        \
  FSDP_SUITE_REGISTER(suite FSDP_EACH(FSDP_SUITE_NAME, suite, __VA_ARGS__))

#define FSDP_SUITE_TEST(suite, test) FSDP_SUITE_DEFINE(suite, FSDP_UNPACK test)
#define FSDP_SUITE_DEFINE(...) FSDP_SUITE_DEFINE_TEST(__VA_ARGS__)
#define FSDP_SUITE_DEFINE_TEST(suite, name, ...) \
  TYPED_TEST_P(suite, name) { __VA_ARGS__; }
#define FSDP_SUITE_NAME(suite, test) , FSDP_FIRST test
#define FSDP_SUITE_REGISTER(...) REGISTER_TYPED_TEST_SUITE_P(__VA_ARGS__)
#define FSDP_UNPACK(...) __VA_ARGS__
#define FSDP_FIRST(first, ...) first

/// FSDP_EACH(macro, given, a, b, ...) expands to macro(given, a) macro(given, b) ..., for at most 64 elements.
#define FSDP_EACH(macro, given, ...) __VA_OPT__(FSDP_EXPAND(FSDP_EACH_NEXT(macro, given, __VA_ARGS__)))
#define FSDP_EACH_NEXT(macro, given, first, ...) \
  macro(given, first) __VA_OPT__(FSDP_EACH_AGAIN FSDP_NOTHING(macro, given, __VA_ARGS__))
#define FSDP_EACH_AGAIN() FSDP_EACH_NEXT
#define FSDP_NOTHING ()
#define FSDP_EXPAND(...) FSDP_EXPAND_16(FSDP_EXPAND_16(FSDP_EXPAND_16(FSDP_EXPAND_16(__VA_ARGS__))))
#define FSDP_EXPAND_16(...) FSDP_EXPAND_4(FSDP_EXPAND_4(FSDP_EXPAND_4(FSDP_EXPAND_4(__VA_ARGS__))))
#define FSDP_EXPAND_4(...) FSDP_EXPAND_1(FSDP_EXPAND_1(FSDP_EXPAND_1(FSDP_EXPAND_1(__VA_ARGS__))))
#define FSDP_EXPAND_1(...) __VA_ARGS__
