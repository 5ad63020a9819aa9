// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors whose message begins with their source.
#pragma once

#include <string>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// Returns f(); adds `prefix` to the message if f throws InputError.
template <class F>
auto prefixed(const std::string& prefix, F f) {
  try {
    return f();
  } catch (const InputError& error) {
    throw InputError(prefix + error.what());
  }
}

}  // namespace fsdp
