// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tessera's exceptions, all derived from Error. A message reports the request, the actual state and a remedy.
///
/// The program prints `what()` as one line on stderr and exits with a status listed in docs/faults.md; a library never
/// aborts.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

#include <tessera/fsdp/core/lists.hpp>

namespace fsdp {

/// Base class of all exceptions that Tessera throws.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// Invalid arguments, files or sizes, which the user can fix.
struct InputError : Error {
  using Error::Error;
  ~InputError() override;
};

/// A loss, gradient, weight or optimizer state is not finite, so training cannot continue.
struct DivergedError : Error {
  using Error::Error;
  ~DivergedError() override;
};

/// A rank computed or stores wrong values, so its machine cannot be trusted.
struct CorruptionError : Error {
  using Error::Error;
  ~CorruptionError() override;
};

/// A violated contract between parts of a program: always a bug in the caller.
struct LogicError : Error {
  using Error::Error;
  ~LogicError() override;
};

/// The system or a device refused an allocation, or an arena needs more memory than was planned.
struct MemoryError : Error {
  using Error::Error;
  ~MemoryError() override;
};

/// Joins its arguments with operator<< into one message.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws E with the joined parts unless `holds` is true.
template <class E = LogicError, class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    throw E(message(parts...));
}

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
