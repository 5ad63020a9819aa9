// SPDX-License-Identifier: Apache-2.0
/// @file
/// How ranks agree while they save, and how long they wait for each other's disk.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/core/error.hpp>
#include <fsdp/train/agreement.hpp>

namespace fsdp::train {

/// What checkpoint::save asks of the other ranks. The communicator must outlive it.
template <class Comm>
checkpoint::Peers peers_of(Comm& communicator) {
  return {.rank = communicator.rank(),
          .all =
              [&](bool ok) {
                std::int64_t every = ok ? 1 : 0;
                comm::reduce(communicator, std::span<std::int64_t>(&every, 1), comm::Reduction::min, {"checkpoint"});
                return every == 1;
              },
          .gather =
              [&](std::string mine) {
                const std::int64_t length = std::ssize(mine);
                std::vector<std::int64_t> lengths(static_cast<std::size_t>(communicator.size()));
                comm::gather_bytes(communicator, std::as_bytes(std::span(&length, 1)),
                                   std::as_writable_bytes(std::span(lengths)), {"checkpoint"});
                std::vector<std::string> texts;
                for (int rank = 0; rank < communicator.size(); ++rank) {  // their lengths may differ much
                  std::string text = rank == communicator.rank() ? std::move(mine) : std::string();
                  text.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]));
                  comm::broadcast(communicator, std::as_writable_bytes(std::span(text)), rank, {"checkpoint"});
                  texts.push_back(communicator.rank() == 0 ? std::move(text) : std::string());
                }
                return texts;
              }};
}

/// Calls `work`, in which ranks may wait `seconds` for each other instead of the deadline of collectives: a peer that
/// is not there may be busy with its disk. Returns what `work` returns. `what` says with what, and what to do: "saving
/// to DIR (--flag)".
template <class Comm, class Work>
auto with_disk_deadline(Comm& communicator, double seconds, const std::string& what, Work work) {
  struct Restored {
    comm::Options& options;
    std::chrono::milliseconds before = options.deadline;
    ~Restored() { options.deadline = before; }
  };
  const Restored restored{communicator.monitor().options};
  restored.options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  const auto begin = std::chrono::steady_clock::now();
  try {
    return work();
  } catch (const comm::CollectiveError& error) {
    if (std::chrono::steady_clock::now() - begin < restored.options.deadline) throw;
    throw comm::CollectiveError(
        message(what, " took longer than ", seconds, " s: is its disk slow, or gone? ", error.what()));
  }
}

/// f() on every rank, which reads files and makes no collective; as on_all_ranks (agreement.hpp), with the disk's
/// limit.
template <class Comm, class F>
auto read_on_all_ranks(Comm& communicator, double seconds, std::string_view label, F f) {
  return with_disk_deadline(communicator, seconds, message("reading ", label, " (--disk-deadline)"),
                            [&] { return on_all_ranks(communicator, label, f); });
}

}  // namespace fsdp::train
