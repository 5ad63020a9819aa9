// SPDX-License-Identifier: Apache-2.0
/// @file
/// How ranks agree while they save, and how long they wait for each other's disk.
#pragma once

#include <string>
#include <string_view>

#include <comm/ranks.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/core/function_ref.hpp>
#include <fsdp/train/agreement.hpp>

namespace fsdp::train {

/// What checkpoint::save asks of the other ranks. The communicator must outlive it.
checkpoint::Peers peers_of(const comm::Ranks& ranks);

namespace detail {

/// with_disk_deadline, of what returns nothing.
void call_with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what,
                             FunctionRef<void()> work);

}  // namespace detail

/// Calls `work`, in which ranks may wait `seconds` for each other instead of the deadline of collectives: a peer that
/// is not there may be busy with its disk. Returns what `work` returns. `what` says with what, and what to do: "saving
/// to DIR (--flag)".
template <class Work>
auto with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what, Work work) {
  return detail::result_of(
      work, [&](FunctionRef<void()> call) { detail::call_with_disk_deadline(ranks, seconds, what, call); });
}

/// f() on every rank, which reads files and makes no collective; as on_all_ranks (agreement.hpp), with the disk's
/// limit.
template <class F>
auto read_on_all_ranks(const comm::Ranks& ranks, double seconds, std::string_view label, F f) {
  return detail::result_of(f, [&](FunctionRef<void()> call) {
    with_disk_deadline(ranks, seconds, message("reading ", label, " (--disk-deadline)"),
                       [&] { detail::call_on_all_ranks(ranks, label, call); });
  });
}

}  // namespace fsdp::train
