// SPDX-License-Identifier: Apache-2.0
/// @file
///
#include "mpi_engine.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/identity.hpp>

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Yields the core to other ranks; sleeps instead once nothing has moved for 2 ms.
void pause(Clock::duration idle) {
  constexpr std::chrono::milliseconds patience{2};
  constexpr std::chrono::microseconds nap{50};
  if (idle < patience)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(nap);
}

}  // namespace

MpiRank::Engine::Engine(Messages messages, const Options& options, MpiWatch* watch)
    : messages_(std::move(messages)),
      windows_(std::make_shared<Windows>(messages_, options.windows, options.deadline)),
      process_(messages_.rank()),
      sum_(messages_, PieceScratch::bytes(messages_.size())),
      watch_(watch),
      exceptions_(std::uncaught_exceptions()) {
  monitor.rank = messages_.rank();
  monitor.options = options;
  find_processes();
  for (InFlight& transfer : in_flight_) transfer.peers.resize(process_of_.size());
}

/// Exchanges process numbers and hosts. Two ranks share windows only if both have Options::windows.
void MpiRank::Engine::find_processes() {
  struct Place {
    int process, windows;
    std::array<char, 64> host;
  };
  Place mine{.process = process_, .windows = monitor.options.windows ? process_ : nobody, .host = {}};
  machine_name().copy(mine.host.data(), mine.host.size() - 1);
  std::vector<Place> all(static_cast<std::size_t>(messages_.size()));
  messages_.exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)),
                     monitor.options.deadline);
  for (const Place& place : all) {
    process_of_.push_back(monitor.options.windows ? place.windows : nobody);
    monitor.world_ranks.push_back(place.process);
    monitor.hosts.emplace_back(place.host.data());
  }
}

bool MpiRank::Engine::shares_with(int peer) const {
  const int process = process_of_[static_cast<std::size_t>(peer)];
  return process != nobody && windows_->shares_with(process);
}

std::shared_ptr<std::byte> MpiRank::Engine::shared_memory(std::int64_t bytes) {
  for (int peer = 0; peer < messages_.size(); ++peer)
    if (peer != messages_.rank() && shares_with(peer)) return Windows::allocate(windows_, bytes);
  return nullptr;
}

Transfer& MpiRank::Engine::prepare() {
  require_alive();
  if (next_ >= depth) wait(next_ - depth);
  return slot(next_).transfer;
}

Ticket MpiRank::Engine::start() {
  const Clock::time_point begin = Clock::now();
  hear(begin);  // before sending or receiving anything that a failed rank would not complete
  if (!told_.empty()) fail_as(told_.front().notice);
  const Ticket ticket = next_++;
  InFlight& transfer = slot(ticket);
  transfer.ticket = ticket;
  transfer.outstanding = 0;
  transfer.not_arrived = messages_.size() - 1;
  transfer.not_settled = 0;
  transfer.sends = false;
  transfer.sum_to_come = transfer.transfer.reduces();
  windows_->forget_released();
  find_places(transfer);
  for (Peer& peer : transfer.peers) {
    peer.sources.clear();
    peer.expected = 0;
    peer.unsent = 0;
    peer.arrived = false;
    peer.reduced = false;
  }
  for (int step = 1; step < messages_.size(); ++step) announce(transfer, (messages_.rank() + step) % messages_.size());
  if (transfer.sum_to_come) sums_.push_back(ticket);
  if (transfer.transfer.copies()) copy_own_piece(transfer.transfer, messages_.rank(), monitor.options.threads);
  progress();
  monitor.totals.copy_seconds += seconds_between(begin, Clock::now());
  return ticket;
}

/// Sends the arrival to a peer, and starts the messages that do not depend on the peer's arrival.
void MpiRank::Engine::announce(InFlight& transfer, int peer) {
  const auto arrival_of = [](Arrival& arrival) { return std::as_writable_bytes(std::span(&arrival, 1)); };
  Peer& to = transfer.peers[static_cast<std::size_t>(peer)];
  const auto theirs = arrival_of(to.arrival);
  receive(transfer, MessageKind::arrival, peer, theirs.data(), static_cast<std::int64_t>(theirs.size()));
  const bool is_own = transfer.transfer.op == Op::all_to_all;
  if (is_own) address_arrival(transfer, peer);
  const std::span<const Place> own_places = is_own ? to.own_places : transfer.places;
  const auto mine = arrival_of(is_own ? to.own_arrival : transfer.arrival);
  send(transfer, MessageKind::arrival, peer, mine.data(), static_cast<std::int64_t>(mine.size()));
  if (is_read_by(transfer, peer)) {
    const auto places = std::as_bytes(own_places);
    if (own_places.size() > carried)
      send(transfer, MessageKind::places, peer, places.data(), static_cast<std::int64_t>(places.size()));
    receive(transfer, MessageKind::done, peer, nullptr, 0);
  } else if (!transfer.transfer.reduces()) {
    send_part(transfer, MessageKind::data, peer);
  }
  ++transfer.not_settled;
}

bool MpiRank::Engine::test(Ticket ticket) {
  require_alive();
  const Clock::time_point begin = Clock::now();
  const double read_before = read_seconds_;
  progress();
  count_copying(slot(ticket), begin, read_before);
  if (complete(ticket)) return true;
  throw_if_a_peer_failed(slot(ticket), Clock::now());
  return false;
}

void MpiRank::Engine::wait(Ticket ticket) {
  require_alive();
  const WaitingIn waiting(watch_, monitor);
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_moved = begin;
  Clock::time_point now = begin;
  while (!complete(ticket)) {
    const double read_before = read_seconds_;
    const bool moved = progress();
    if (!moved) pause(now - last_moved);
    count_copying(slot(ticket), std::exchange(now, Clock::now()), read_before);
    if (moved) last_moved = now;
    if (complete(ticket)) return;
    throw_if_a_peer_failed(slot(ticket), now);
    if (now >= deadline_after(last_moved, monitor.options.deadline))
      fail(missed_deadline(now - last_moved, missing(slot(ticket)), monitor.options));
  }
}

/// Counts time since `begin` as copying: all of it if data is sent in messages and all peers have arrived, else the
/// time spent reading windows.
void MpiRank::Engine::count_copying(const InFlight& transfer, Clock::time_point begin, double read_before) {
  const bool moves = transfer.sends && transfer.not_arrived == 0;
  monitor.totals.copy_seconds += moves ? seconds_between(begin, Clock::now()) : read_seconds_ - read_before;
}

bool MpiRank::Engine::complete(Ticket ticket) {
  const InFlight& transfer = slot(ticket);
  return transfer.ticket != ticket || (transfer.outstanding == 0 && !transfer.sum_to_come);
}

bool MpiRank::Engine::progress() {
  bool moved = false;
  try {
    for (;;) {
      const std::span<const Message> completed = messages_.poll();
      const bool advanced = !completed.empty();
      for (const Message& message : completed) on(message);
      if (!advance_sums() && !advanced) return moved;
      moved = true;
    }
  } catch (const CollectiveError& error) {  // ranks disagree, or a peer's memory is gone
    heard_ = {};  // reset, to look again: the failed rank sent its notice before it freed its memory
    hear(Clock::now());
    if (!told_.empty()) fail_as(told_.front().notice);
    fail(error.what());
  }
}

/// Starts the next sum if none is running and it is known for every peer whether it sends messages. Ends complete sums.
bool MpiRank::Engine::advance_sums() {
  bool moved = false;
  for (;;) {
    if (sum_.idle()) {
      if (sums_.empty() || slot(sums_.front()).not_settled > 0) return moved;
      begin_sum(slot(sums_.front()));
      sums_.pop_front();
      moved = true;
    }
    if (!sum_.done()) return moved;
    InFlight& transfer = slot(sum_.ticket());
    sum_.end();
    after_sum(transfer);
    moved = true;
  }
}

void MpiRank::Engine::on(const Message& message) {
  if (message.kind == MessageKind::piece) return sum_.on(message);
  InFlight& transfer = slot(message.transfer);
  --transfer.outstanding;
  Peer& peer = transfer.peers[static_cast<std::size_t>(message.peer)];
  if (message.sent) {
    --peer.unsent;
    return;
  }
  --peer.expected;
  switch (message.kind) {
    case MessageKind::arrival: return on_arrival(transfer, message.peer);
    case MessageKind::places: return on_places(transfer, message.peer);
    case MessageKind::reduced:
      peer.reduced = true;
      if (!transfer.sum_to_come) read_part(transfer, message.peer);
      return;
    case MessageKind::data:
    case MessageKind::piece:
    case MessageKind::sum:
    case MessageKind::done:
    case MessageKind::setup:
    case MessageKind::failure: return;
  }
}

/// Returns the length of the longest message of a kind: data is split into messages of bounded length, control messages
/// are not.
std::int64_t MpiRank::Engine::longest(MessageKind kind, std::int64_t bytes) const {
  const bool is_data = kind == MessageKind::data || kind == MessageKind::sum;
  return is_data ? monitor.options.message_bytes : std::max<std::int64_t>(bytes, 1);
}

void MpiRank::Engine::send(InFlight& to, MessageKind kind, int peer, const std::byte* data, std::int64_t bytes) {
  const std::int64_t step = longest(kind, bytes);
  for (std::int64_t at = 0; at == 0 || at < bytes; at += step) {
    ++to.outstanding;
    ++to.peers[static_cast<std::size_t>(peer)].unsent;
    messages_.send({.transfer = to.ticket, .kind = kind, .sent = true, .peer = peer}, data + at,
                   std::min(bytes - at, step));
  }
}

void MpiRank::Engine::receive(InFlight& to, MessageKind kind, int peer, std::byte* data, std::int64_t bytes) {
  const std::int64_t step = longest(kind, bytes);
  for (std::int64_t at = 0; at == 0 || at < bytes; at += step) {
    ++to.outstanding;
    ++to.peers[static_cast<std::size_t>(peer)].expected;
    messages_.receive({.transfer = to.ticket, .kind = kind, .sent = false, .peer = peer}, data + at,
                      std::min(bytes - at, step));
  }
}

/// Sends a peer its part of an all_gather (or of the final gather of an all_reduce), of an all_to_all or of a
/// broadcast.
void MpiRank::Engine::send_part(InFlight& to, MessageKind kind, int peer) {
  const Transfer& asked = to.transfer;
  if (asked.op == Op::broadcast && asked.root != messages_.rank()) return;
  for (const ByteSegment& segment : asked.segments) {
    const int rank = asked.op == Op::broadcast ? 0 : messages_.rank();
    const std::int64_t bytes = asked.element_bytes() * segment.sent_count(rank, peer);
    const std::byte* const data = segment.local + segment.sent_begin(peer) * asked.element_bytes();
    if (bytes > 0) send(to, kind, peer, data, bytes);
    to.sends = to.sends || bytes > 0;
  }
}

void MpiRank::Engine::receive_part(InFlight& to, MessageKind kind, int peer) {
  const Transfer& asked = to.transfer;
  if (asked.op == Op::broadcast && asked.root != peer) return;
  for (const ByteSegment& segment : asked.segments) {
    const bool whole = asked.op == Op::broadcast;
    const std::int64_t bytes = asked.element_bytes() * segment.count(whole ? 0 : peer);
    std::byte* const data = whole ? segment.local : segment.full + segment.begin(peer) * asked.element_bytes();
    if (bytes > 0) receive(to, kind, peer, data, bytes);
    to.sends = to.sends || bytes > 0;
  }
}

/// Returns the names of the peers that a transfer waits for.
std::string MpiRank::Engine::missing(const InFlight& transfer) const {
  std::string text;
  for (int peer = 0; peer < messages_.size(); ++peer) {
    if (!needs(transfer, peer)) continue;
    const bool came = transfer.peers[static_cast<std::size_t>(peer)].arrived;
    text += (text.empty() ? "" : ", ") + monitor.name_of(peer, came ? "has come, not finished" : "has not come");
  }
  return text;
}

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
