// SPDX-License-Identifier: Apache-2.0
/// @file
/// Bad data stop every rank before any computes: an InputError of one becomes that of all.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include <comm/collectives.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::train {

/// What micro-batches hold.
struct BatchCounts {
  std::int64_t valid_targets = 0;
  std::int64_t squares = 0;  ///< sum of the squares of the documents' lengths: twice the pairs that attention sees

  friend bool operator==(const BatchCounts&, const BatchCounts&) = default;
};

/// Calls `prepare`, which makes this rank's micro-batches and counts what they hold, and returns the sums over ranks.
/// Where it throws InputError on any rank, all throw that of the first such rank.
template <comm::Communicator C, class Prepare>
BatchCounts sum_counts(C& communicator, const Prepare& prepare) {
  std::string complaint;
  std::array<std::int64_t, 3> sums{};  // the counts; ranks that refuse their data
  try {
    const BatchCounts own = prepare();
    sums = {own.valid_targets, own.squares, 0};
  } catch (const InputError& error) {
    complaint = error.what();
    sums[2] = 1;
  }
  const bool refuses = sums[2] != 0;
  comm::reduce(communicator, std::span<std::int64_t>(sums), comm::Reduction::sum, {"valid targets"});
  if (sums[2] == 0) return {.valid_targets = sums[0], .squares = sums[1]};

  std::array<std::int64_t, 1> first = {refuses ? communicator.rank() : communicator.size()};
  comm::reduce(communicator, std::span<std::int64_t>(first), comm::Reduction::min, {"bad data"});
  const auto root = static_cast<int>(first[0]);
  std::array<std::int64_t, 1> length = {std::ssize(complaint)};
  comm::broadcast(communicator, std::as_writable_bytes(std::span(length)), root, {"bad data"});
  complaint.resize(static_cast<std::size_t>(length[0]));
  comm::broadcast(communicator, std::as_writable_bytes(std::span(complaint)), root, {"bad data"});
  throw InputError(complaint);
}

}  // namespace fsdp::train
