// SPDX-License-Identifier: Apache-2.0
// With which sanitizer a test was compiled. g++ defines macros, clang 14 answers __has_feature.
#pragma once

#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif

namespace fsdp::test {

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
inline constexpr bool thread_sanitizer = true;
#else
inline constexpr bool thread_sanitizer = false;
#endif

/// Under either sanitizer code runs many times slower, and what is freed stays resident.
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = thread_sanitizer;
#endif

}  // namespace fsdp::test
