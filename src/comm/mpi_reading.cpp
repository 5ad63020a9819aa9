// SPDX-License-Identifier: Apache-2.0
/// @file
/// The part of MpiRank::Engine that reads peers' windows, and begins and ends sums.
#include <algorithm>

#include <tessera/fsdp/core/hash.hpp>

#include "mpi_engine.hpp"

namespace fsdp::comm {

/// Looks up the places of this rank's memory that peers read: `local` in a gather or all_to_all, all of `full` in a
/// reduction, root's bytes in a broadcast. Peers read in place only if all of it lies in windows.
void MpiRank::Engine::find_places(InFlight& transfer) const {
  const Transfer& asked = transfer.transfer;
  transfer.arrival = {.outline = asked};
  transfer.places.assign(asked.segments.size(), {});
  if (asked.op == Op::barrier || (asked.op == Op::broadcast && asked.root != messages_.rank())) return;
  bool found_some = false;
  for (std::size_t index = 0; index < asked.segments.size(); ++index) {
    const ByteSegment& segment = asked.segments[index];
    const std::int64_t count = asked.reduces()             ? segment.total()
                               : asked.op == Op::broadcast ? segment.counts[0]
                                                           : segment.local_total(messages_.rank());
    if (count == 0) continue;
    const std::byte* const data = asked.reduces() ? segment.full : segment.local;
    transfer.places[index] = windows_->find(data, count * asked.element_bytes());
    if (transfer.places[index].window == 0) return;
    found_some = true;
  }
  transfer.arrival.in_windows = found_some;
  std::copy_n(transfer.places.begin(), std::min(carried, transfer.places.size()), transfer.arrival.places.begin());
}

/// Makes the arrival for one peer, with the places of its pieces.
void MpiRank::Engine::address_arrival(InFlight& transfer, int peer) const {
  Peer& to = transfer.peers[static_cast<std::size_t>(peer)];
  to.own_arrival = transfer.arrival;
  to.own_arrival.counts_hash = hash_seed;
  to.own_places = transfer.places;
  for (std::size_t index = 0; index < to.own_places.size(); ++index) {
    const ByteSegment& exchange = transfer.transfer.segments[index];
    to.own_arrival.counts_hash = hashed(to.own_arrival.counts_hash, exchange.sent_count(messages_.rank(), peer));
    to.own_places[index].offset += exchange.sent_begin(peer) * transfer.transfer.element_bytes();
  }
  std::copy_n(to.own_places.begin(), std::min(carried, to.own_places.size()), to.own_arrival.places.begin());
}

void MpiRank::Engine::on_arrival(InFlight& transfer, int peer) {
  Peer& from = transfer.peers[static_cast<std::size_t>(peer)];
  from.arrived = true;
  --transfer.not_arrived;
  require_same(process_, transfer.arrival.outline, monitor.world_rank_of(peer), from.arrival.outline);
  if (transfer.transfer.op == Op::all_to_all) {
    std::uint64_t expected = hash_seed;
    for (const ByteSegment& exchange : transfer.transfer.segments) expected = hashed(expected, exchange.count(peer));
    require<CollectiveError>(
        from.arrival.counts_hash == expected, "ranks disagree: ", monitor.name_of(peer), " sends ",
        monitor.name_of(messages_.rank()),
        " pieces of other lengths than its receive_counts say; Options::checks names the exchange");
  }
  if (shares_with(peer) && from.arrival.in_windows != 0) {
    const std::size_t count = transfer.transfer.segments.size();
    if (count <= carried) {
      from.places.assign(from.arrival.places.begin(), from.arrival.places.begin() + static_cast<std::ptrdiff_t>(count));
      return on_places(transfer, peer);
    }
    from.places.resize(count);
    return receive(transfer, MessageKind::places, peer, std::as_writable_bytes(std::span(from.places)));
  }
  --transfer.not_settled;
  if (!transfer.transfer.reduces()) post_part(transfer, {.kind = MessageKind::data, .peer = peer});
}

void MpiRank::Engine::on_places(InFlight& transfer, int peer) {
  Peer& from = transfer.peers[static_cast<std::size_t>(peer)];
  from.sources.clear();
  for (const Place& place : from.places)
    from.sources.push_back(place.window == 0 ? nullptr
                                             : windows_->map(process_of_[static_cast<std::size_t>(peer)], place));
  --transfer.not_settled;
  if (!transfer.transfer.reduces()) return read_part(transfer, peer);
  if (transfer.transfer.op == Op::all_reduce) receive(transfer, MessageKind::reduced, peer);
}

void MpiRank::Engine::begin_sum(InFlight& transfer) {
  transfer.sum_peers.clear();
  for (int peer = 0; peer < messages_.size(); ++peer) {
    const Peer& from = transfer.peers[static_cast<std::size_t>(peer)];
    const bool self = peer == messages_.rank();
    transfer.sum_peers.push_back({.sources = from.sources, .reads = self || is_read_by(transfer, peer)});
    transfer.sends = transfer.sends || (!self && (from.sources.empty() || !is_read_by(transfer, peer)));
  }
  for (const ByteSegment& segment : transfer.transfer.segments)
    for (const Peer& from : transfer.peers)
      if (!from.sources.empty())
        monitor.totals.shared_bytes += segment.count(messages_.rank()) * size_of(transfer.transfer.wire);
  const Stopwatch reading(read_seconds_);
  sum_.begin(transfer.ticket, transfer.transfer, transfer.sum_peers, monitor.options.threads);
}

/// Continues a transfer once its sum is complete: this rank's sums are stored, and the contributions for peers that do
/// not read in place have been sent.
void MpiRank::Engine::after_sum(InFlight& transfer) {
  transfer.sum_to_come = false;
  for (int step = 1; step < messages_.size(); ++step) {
    const int peer = (messages_.rank() + step) % messages_.size();
    const Peer& from = transfer.peers[static_cast<std::size_t>(peer)];
    if (transfer.transfer.op == Op::reduce_scatter) {
      if (!from.sources.empty()) send(transfer, MessageKind::done, peer);
      continue;
    }
    if (is_read_by(transfer, peer))
      send(transfer, MessageKind::reduced, peer);
    else
      post_part(transfer, {.kind = MessageKind::sum, .sent = true, .peer = peer});
    if (from.sources.empty())
      post_part(transfer, {.kind = MessageKind::sum, .peer = peer});
    else if (from.reduced)
      read_part(transfer, peer);
  }
}

/// Copies a peer's piece, or root's bytes, out of its window.
void MpiRank::Engine::read_part(InFlight& transfer, int peer) {
  const Clock::time_point begin = Clock::now();
  const Transfer& asked = transfer.transfer;
  const Peer& from = transfer.peers[static_cast<std::size_t>(peer)];
  for (std::size_t index = 0; index < asked.segments.size(); ++index) {
    const ByteSegment& segment = asked.segments[index];
    const bool whole = asked.op == Op::broadcast;
    const std::int64_t bytes = segment.count(whole ? 0 : peer) * asked.element_bytes();
    const std::int64_t offset = whole ? 0 : segment.begin(peer) * asked.element_bytes();
    copy_bytes((whole ? segment.local : segment.full) + offset, from.sources[index] + (asked.reduces() ? offset : 0),
               bytes, monitor.options.threads);
    monitor.totals.shared_bytes += bytes;
  }
  read_seconds_ += Seconds(Clock::now() - begin).count();
  send(transfer, MessageKind::done, peer);
}

}  // namespace fsdp::comm
