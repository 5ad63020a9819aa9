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

namespace fsdp {

/// Base class of all exceptions that Tessera throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  ~Error() override;
};

/// Invalid arguments, files or sizes, which the user can fix.
class InputError : public Error {
 public:
  using Error::Error;
  ~InputError() override;
};

/// A loss, gradient, weight or optimizer state is not finite, so training cannot continue.
class DivergedError : public Error {
 public:
  using Error::Error;
  ~DivergedError() override;
};

/// A rank computed or stores wrong values, so its machine cannot be trusted.
class CorruptionError : public Error {
 public:
  using Error::Error;
  ~CorruptionError() override;
};

/// A violated contract between parts of a program: always a bug in the caller.
class LogicError : public Error {
 public:
  using Error::Error;
  ~LogicError() override;
};

/// The system or a device refused an allocation, or an arena needs more memory than was planned.
class MemoryError : public Error {
 public:
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

}  // namespace fsdp
