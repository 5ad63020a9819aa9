// SPDX-License-Identifier: Apache-2.0
#include "mpi_engine.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include <tessera/fsdp/core/identity.hpp>

namespace fsdp::comm {
namespace {

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
  for (InFlight& transfer : in_flight_) transfer.peers.resize(static_cast<std::size_t>(messages_.size()));
  // Exchanges process numbers and hosts. Two ranks share windows only if both have Options::windows.
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
  const Stopwatch copying(monitor.totals.copy_seconds);
  receive_notices(Clock::now());  // before sending or receiving anything that a failed rank would not complete
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
  return ticket;
}

/// Sends the arrival to a peer, and starts the messages that do not depend on the peer's arrival.
void MpiRank::Engine::announce(InFlight& transfer, int peer) {
  Peer& to = transfer.peers[static_cast<std::size_t>(peer)];
  receive(transfer, MessageKind::arrival, peer, std::as_writable_bytes(std::span(&to.arrival, 1)));
  const bool is_own = transfer.transfer.op == Op::all_to_all;
  if (is_own) address_arrival(transfer, peer);
  const std::span<const Place> own_places = is_own ? to.own_places : transfer.places;
  const Arrival& mine = is_own ? to.own_arrival : transfer.arrival;
  send(transfer, MessageKind::arrival, peer, std::as_bytes(std::span(&mine, 1)));
  if (is_read_by(transfer, peer)) {
    if (own_places.size() > carried) send(transfer, MessageKind::places, peer, std::as_bytes(own_places));
    receive(transfer, MessageKind::done, peer);
  } else if (!transfer.transfer.reduces()) {
    post_part(transfer, {.kind = MessageKind::data, .sent = true, .peer = peer});
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
  monitor.totals.copy_seconds += moves ? Seconds(Clock::now() - begin).count() : read_seconds_ - read_before;
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
    receive_notices(Clock::now());
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
    default: return;
  }
}

/// Starts a message. Data is split into messages of bounded length, control messages are not.
void MpiRank::Engine::post(InFlight& to, Message message, std::byte* data, std::int64_t bytes) {
  message.transfer = to.ticket;
  const bool is_data = message.kind == MessageKind::data || message.kind == MessageKind::sum;
  const std::int64_t step = is_data ? monitor.options.message_bytes : std::max<std::int64_t>(bytes, 1);
  Peer& peer = to.peers[static_cast<std::size_t>(message.peer)];
  for (std::int64_t at = 0; at == 0 || at < bytes; at += step) {
    ++to.outstanding;
    ++(message.sent ? peer.unsent : peer.expected);
    messages_.start(message, data + at, std::min(bytes - at, step));
  }
}

/// Starts the messages of one rank's part of an all_gather (or of the final gather of an all_reduce), of an all_to_all
/// or of a broadcast: this rank's part for a peer, or the peer's for this rank.
void MpiRank::Engine::post_part(InFlight& to, const Message& message) {
  const Transfer& asked = to.transfer;
  const int rank = messages_.rank(), peer = message.peer;
  const bool whole = asked.op == Op::broadcast;
  if (whole && asked.root != (message.sent ? rank : peer)) return;
  for (const ByteSegment& segment : asked.segments) {
    const std::int64_t count = whole          ? segment.count(0)
                               : message.sent ? segment.sent_count(rank, peer)
                                              : segment.count(peer);
    const std::int64_t begin = whole ? 0 : message.sent ? segment.sent_begin(peer) : segment.begin(peer);
    std::byte* const data = (whole || message.sent ? segment.local : segment.full) + begin * asked.element_bytes();
    if (count > 0) post(to, message, data, count * asked.element_bytes());
    to.sends = to.sends || count > 0;
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

MpiRank::Engine::Engine(Engine& parent, std::span<const int> ranks, std::vector<int> process_of, int context)
    : messages_(parent.messages_.part(ranks, context)),
      windows_(parent.windows_),
      process_(parent.process_),
      process_of_(std::move(process_of)),
      sum_(messages_, PieceScratch::bytes(messages_.size())),
      watch_(parent.watch_),
      exceptions_(std::uncaught_exceptions()) {
  monitor.rank = messages_.rank();
  monitor.follow(parent.monitor, ranks);
  for (InFlight& transfer : in_flight_) transfer.peers.resize(ranks.size());
}

std::unique_ptr<MpiRank::Engine> MpiRank::Engine::split(int color) {
  struct Vote {
    int color = 0, process = nobody, context = 0;
  };
  const Vote mine{
      .color = color, .process = monitor.options.windows ? process_ : nobody, .context = messages_.free_context()};
  std::vector<Vote> votes(static_cast<std::size_t>(messages_.size()));
  gather_values(*this, std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(votes)));
  std::vector<int> ranks, process_of;
  int context = 0;
  for (int rank = 0; rank < messages_.size(); ++rank) {
    const Vote& vote = votes[static_cast<std::size_t>(rank)];
    if (vote.color != color) continue;
    ranks.push_back(rank);
    process_of.push_back(monitor.options.windows ? vote.process : nobody);
    context = std::max(context, vote.context);
  }
  return std::unique_ptr<Engine>(new Engine(*this, ranks, std::move(process_of), context));
}

}  // namespace fsdp::comm
