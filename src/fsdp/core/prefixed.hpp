// SPDX-License-Identifier: Apache-2.0
/// @file
/// Errors that say whose they are.
#pragma once

#include <string>

#include <tessera/fsdp/core/error.hpp>

namespace fsdp {

/// Returns f(); puts `prefix` before what its InputError says.
template <class F>
auto prefixed(const std::string& prefix, F f) {
  try {
    return f();
  } catch (const InputError& error) {
    throw InputError(prefix + error.what());
  }
}

}  // namespace fsdp
