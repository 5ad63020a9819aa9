// SPDX-License-Identifier: Apache-2.0
/// @file
/// Environment variables.
#pragma once

#include <cstdlib>
#include <string_view>

namespace fsdp {

/// Returns the value of an environment variable. Empty if it is not set or set to an empty text: POSIX treats the two
/// identically for the variables that it defines.
inline std::string_view environment(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return value == nullptr ? std::string_view() : value;
}

}  // namespace fsdp
