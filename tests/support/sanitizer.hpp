// SPDX-License-Identifier: Apache-2.0
// The sanitizer with which a test was compiled. g++ defines macros; clang 14 has __has_feature.
#pragma once

#if defined(__has_feature)
#define FSDP_TEST_FEATURE(feature) __has_feature(feature)
#else
#define FSDP_TEST_FEATURE(feature) 0
#endif

namespace fsdp::test {

#if defined(__SANITIZE_THREAD__) || FSDP_TEST_FEATURE(thread_sanitizer)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif

/// Under either sanitizer, code runs many times slower, and freed memory stays resident.
#if defined(__SANITIZE_ADDRESS__) || FSDP_TEST_FEATURE(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = thread_sanitizer;
#endif

}  // namespace fsdp::test

#undef FSDP_TEST_FEATURE
