// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of MpiRank::Engine that makes an engine of a subset of its ranks, by one gather and without collective
/// calls of MPI.
#include <algorithm>
#include <exception>

#include "mpi_engine.hpp"

namespace fsdp::comm {

MpiRank::Engine::Engine(Engine& parent, const Part& part)
    : messages_(parent.messages_.part(part.ranks, part.context)),
      windows_(parent.windows_),
      process_(parent.process_),
      process_of_(part.process_of),
      sum_(messages_, PieceScratch::bytes(messages_.size())),
      watch_(parent.watch_),
      exceptions_(std::uncaught_exceptions()) {
  monitor.rank = messages_.rank();
  monitor.options = parent.monitor.options;
  for (const int rank : part.ranks) {
    monitor.world_ranks.push_back(parent.monitor.world_rank_of(rank));
    monitor.hosts.push_back(parent.monitor.hosts[static_cast<std::size_t>(rank)]);
  }
  for (InFlight& transfer : in_flight_) transfer.peers.resize(process_of_.size());
}

std::unique_ptr<MpiRank::Engine> MpiRank::Engine::split(int color) {
  struct Vote {
    int color = 0, process = nobody, context = 0;
  };
  const Vote mine{
      .color = color, .process = monitor.options.windows ? process_ : nobody, .context = messages_.free_context()};
  std::vector<Vote> votes(static_cast<std::size_t>(messages_.size()));
  gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(votes)));
  Part part;
  for (int rank = 0; rank < messages_.size(); ++rank) {
    const Vote& vote = votes[static_cast<std::size_t>(rank)];
    if (vote.color != color) continue;
    part.ranks.push_back(rank);
    part.process_of.push_back(monitor.options.windows ? vote.process : nobody);
    part.context = std::max(part.context, vote.context);
  }
  return std::unique_ptr<Engine>(new Engine(*this, part));
}

/// Gathers a few bytes of every rank.
void MpiRank::Engine::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  const std::vector<std::int64_t> counts(process_of_.size(), std::ssize(mine));
  Transfer& transfer = prepare();
  describe(transfer, Op::all_gather, DType::u8, DType::u8);
  transfer.values = true;
  add_segment(transfer, {.local = const_cast<std::byte*>(mine.data()), .full = all.data(), .counts = counts});
  wait(start());
}

}  // namespace fsdp::comm
