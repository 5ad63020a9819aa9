// SPDX-License-Identifier: Apache-2.0
/// @file
/// The deadline of --disk-deadline: for collectives around file access, in which ranks may wait for slow disks.
#pragma once

#include <string>
#include <string_view>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

namespace fsdp::train {

namespace detail {

/// The variant of with_disk_deadline for work without a result.
void call_with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what,
                             FunctionRef<void()> work);
/// Calls f() on all ranks as comm::together does with `label`, under the deadline of with_disk_deadline.
void together_with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what,
                                 std::string_view label, FunctionRef<void()> f);

}  // namespace detail

/// Calls `work` and returns its result. Meanwhile the deadline of collectives is `seconds`, since another rank may be
/// busy with a slow disk. `what`: the activity and its flag, for the error: "saving to DIR (--flag)".
template <class Work>
auto with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what, Work work) {
  return comm::detail::result_of(
      work, [&](FunctionRef<void()> call) { detail::call_with_disk_deadline(ranks, seconds, what, call); });
}

/// Calls f(), which reads files and starts no collective, like comm::together. Ranks wait up to `seconds`.
template <class F>
auto read_together(const comm::Ranks& ranks, double seconds, std::string_view label, F f) {
  return comm::detail::result_of(f, [&](FunctionRef<void()> call) {
    detail::together_with_disk_deadline(ranks, seconds, message("reading ", label, " (--disk-deadline)"), label, call);
  });
}

}  // namespace fsdp::train
