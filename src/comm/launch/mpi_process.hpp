// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI in a Tessera program: initialises it, finalises it, and aborts all processes at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "../messages.hpp"

namespace fsdp::comm {

/// Initialises MPI in its constructor and finalises it in its destructor; does neither if another instance is alive.
class MpiProcess {
 public:
  /// `deadline` limits MPI_Finalize and the start of the first communicator; MPI_Init gets at least 60 s. Throws
  /// InputError if the process has initialised MPI before and no other MpiProcess lives.
  explicit MpiProcess(std::chrono::milliseconds deadline);
  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;
  ~MpiProcess();

  int rank() const;
  int size() const;
  /// Makes the Messages of all processes of the job.
  Messages messages() const;
  /// Returns whether all processes call this with the same bytes within two seconds. If not, only `abort` may follow.
  bool agree(std::span<const std::byte> bytes);
  [[noreturn]] static void abort(int status);

 private:
  std::chrono::milliseconds deadline_;
  std::string name_ = "a rank";  ///< this process, as the watchdog reports it
};

}  // namespace fsdp::comm
