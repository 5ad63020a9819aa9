// SPDX-License-Identifier: Apache-2.0
/// @file
/// The deadline of --disk-deadline: for collectives around reading and writing files, where ranks wait for slow disks.
#pragma once

#include <string>
#include <string_view>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::train {

namespace detail {

/// with_disk_deadline for work that returns nothing.
void call_with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what,
                             FunctionRef<void()> work);

}  // namespace detail

/// Calls `work` and returns its result. While it runs, the deadline of collectives is `seconds`, since a rank may wait
/// for one that is busy with a slow disk. `what`: the activity and its flag, for the error: "saving to DIR (--flag)".
template <class Work>
auto with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what, Work work) {
  return comm::detail::result_of(
      work, [&](FunctionRef<void()> call) { detail::call_with_disk_deadline(ranks, seconds, what, call); });
}

/// Calls f(), which reads files and starts no collective, on every rank, as on_all_ranks does (agreement.hpp). Ranks
/// wait up to `seconds` for each other.
template <class F>
auto read_on_all_ranks(const comm::Ranks& ranks, double seconds, std::string_view label, F f) {
  return comm::detail::result_of(f, [&](FunctionRef<void()> call) {
    with_disk_deadline(ranks, seconds, message("reading ", label, " (--disk-deadline)"),
                       [&] { comm::detail::call_on_all_ranks(ranks, label, call); });
  });
}

}  // namespace fsdp::train
