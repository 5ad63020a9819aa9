// SPDX-License-Identifier: Apache-2.0
/// @file
/// What a rank remembers of its collectives: options, the record, times and bytes, and what it waits for now.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fsdp/core/dtype.hpp>
#include <fsdp/core/error.hpp>

namespace fsdp::comm {

/// A collective that cannot finish: a deadline passed, ranks disagreed, or another rank failed.
class CollectiveError : public Error {
 public:
  using Error::Error;
};

enum class Op : std::uint8_t { all_gather, reduce_scatter, all_reduce, reduce, broadcast, gather_bytes, barrier };
std::string_view name_of(Op op);

/// Run-time switches of one communicator.
struct Options {
  std::chrono::milliseconds deadline{20'000};  ///< longest wait for other ranks in one collective
  bool checks = false;                         ///< compare op, dtype, sizes and sequence number on every rank first
  bool record = false;                         ///< keep an Event for every collective
};

/// What a collective is for, in error messages, records and traces.
struct Label {
  std::string_view what = "";  ///< must outlive the communicator: a literal
  int unit = -1;

  friend bool operator==(const Label&, const Label&) = default;
};

/// One collective, as this rank asked for it.
struct Event {
  std::int64_t sequence = 0;
  Op op = Op::barrier;
  DType dtype = DType::u8;
  std::int64_t bytes = 0;  ///< of all segments' `full`, in the dtype of the wire
  Label label;
};

/// Sums since the start.
struct Totals {
  double copy_seconds = 0;     ///< moving and summing
  double waiting_seconds = 0;  ///< other ranks were not there yet
  std::int64_t copied_bytes = 0;  ///< read or received from other ranks, plus copies within this one
  std::int64_t collectives = 0;
};

/// State of the free functions in comm/collectives.hpp; one per communicator object, never shared between ranks.
class Monitor {
 public:
  Options options;
  Totals totals;
  std::vector<Event> events;
  std::int64_t sequence = 0;
  Event current;  ///< the collective that is being started or waited for
};

}  // namespace fsdp::comm
