// SPDX-License-Identifier: Apache-2.0
/// @file
/// The state of Messages: requests in flight, and the duplicate of the caller's MPI_Comm.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "messages.hpp"
#include "mpi_library.hpp"

namespace fsdp::comm {

/// A tag encodes a context, a transfer's number among those in flight, and a message kind.
inline constexpr int kinds = 16;
inline constexpr int transfers = 64;
inline constexpr int tags_of_context = kinds * transfers;

/// Returns whether MPI has been finalised.
inline bool is_finalized() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized != 0;
}

/// The MPI communicator shared by all communicators that are split from one another.
struct Messages::Duplicate {
  MPI_Comm communicator = MPI_COMM_NULL;
  int next_context = 1;
  bool abandoned = false;  ///< messages of a failed communicator may still come: MPI must not reuse its id

  Duplicate() = default;
  Duplicate(const Duplicate&) = delete;
  Duplicate& operator=(const Duplicate&) = delete;
  ~Duplicate() {
    if (communicator != MPI_COMM_NULL && !abandoned && !is_finalized()) MPI_Comm_free(&communicator);
  }
};

/// The notices that a failed rank sends: first the reason, then that it receives nothing more.
struct Messages::Notice {
  int origin = 0;
  int takes_no_more = 0;
  std::array<char, 496> text{};
};

struct Messages::State {
  std::shared_ptr<Duplicate> duplicate;
  int context = 0;
  std::vector<int> ranks;  ///< ranks in the MPI communicator, by rank in this one
  std::uint64_t trades = 0;
  std::vector<MPI_Request> requests;
  std::vector<Message> under_way;  ///< message of each request
  std::vector<int> indices;        ///< requests that the last poll completed
  std::vector<Message> completed;
  Notice told, ended;
  std::vector<char> takes_no_more;  ///< by rank: whether this failed peer has reported that it receives nothing more

  MPI_Request* add(const Message& message) {
    under_way.push_back(message);
    return &requests.emplace_back(MPI_REQUEST_NULL);
  }
  int tag_of(const Message& message) const {
    return context * tags_of_context + static_cast<int>(message.transfer % transfers) * kinds +
           static_cast<int>(message.kind);
  }
  int rank_of(const Message& message) const { return ranks[static_cast<std::size_t>(message.peer)]; }
};

}  // namespace fsdp::comm
