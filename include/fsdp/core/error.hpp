// SPDX-License-Identifier: Apache-2.0
/// @file
/// The one family of exceptions. A message says what was asked, what was found and what to do.
///
/// The program prints `what()` as one line on stderr and ends with the status that docs/faults.md lists; a library
/// never aborts.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace fsdp {

/// Base of everything that Tessera throws.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Arguments, files or sizes that the user can mend.
class InputError : public Error {
 public:
  using Error::Error;
};

/// A loss, gradient, weight or optimizer state that is not finite, so that training cannot go on from it.
class DivergedError : public Error {
 public:
  using Error::Error;
};

/// A contract between parts of a program that was broken: always a bug in the caller.
class LogicError : public Error {
 public:
  using Error::Error;
};

/// Memory beyond what an arena was planned to hold.
class MemoryError : public Error {
 public:
  using Error::Error;
};

/// Joins its arguments with operator<< into one message.
template <class... Parts>
std::string message(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/// Throws E with the joined parts unless `holds`.
template <class E = LogicError, class... Parts>
void require(bool holds, const Parts&... parts) {
  if (!holds) [[unlikely]]
    throw E(message(parts...));
}

}  // namespace fsdp
