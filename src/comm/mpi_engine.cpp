// SPDX-License-Identifier: Apache-2.0
#include "mpi_engine.hpp"

#include <algorithm>
#include <exception>
#include <thread>

#include "mpi_signal.hpp"

namespace fsdp::comm {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

/// Leaves the core to other ranks; nothing has moved for `idle`.
void pause(Clock::duration idle) {
  constexpr std::chrono::milliseconds patience{2};
  constexpr std::chrono::microseconds nap{50};
  if (idle < patience)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(nap);
}

}  // namespace

MpiRank::Engine::Engine(Messages messages, const Options& options)
    : messages_(std::move(messages)),
      sum_(messages_, PieceSum::scratch_bytes_for(messages_.size())),
      exceptions_(std::uncaught_exceptions()) {
  monitor.rank = messages_.rank();
  monitor.options = options;
  const auto size = static_cast<std::size_t>(messages_.size());
  for (InFlight& transfer : in_flight_) {
    transfer.expected_from.resize(size);
    transfer.arrived.resize(size);
  }
}

MpiRank::Engine::~Engine() {
  if (std::uncaught_exceptions() > exceptions_) give_up();
}

void MpiRank::Engine::give_up() noexcept {
  failed_ = true;
  messages_.leave_behind();
}

void MpiRank::Engine::require_alive() const {
  require<CollectiveError>(!failed_, "an earlier collective of this communicator failed; start the job again");
}

Transfer& MpiRank::Engine::prepare() {
  require_alive();
  if (next_ >= depth) wait(next_ - depth);
  return slot(next_).transfer;
}

Ticket MpiRank::Engine::start() {
  const Clock::time_point begin = Clock::now();
  const Ticket ticket = next_++;
  InFlight& transfer = slot(ticket);
  transfer.ticket = ticket;
  transfer.outstanding = 0;
  std::fill(transfer.expected_from.begin(), transfer.expected_from.end(), 0);
  std::fill(transfer.arrived.begin(), transfer.arrived.end(), char{0});
  transfer.not_arrived = messages_.size() - 1;
  for (int step = 1; step < messages_.size(); ++step) {
    const int peer = (messages_.rank() + step) % messages_.size();
    receive(transfer, MessageKind::arrival, peer, nullptr, 0);
    send(transfer, MessageKind::arrival, peer, nullptr, 0);
  }
  transfer.sum_to_come = transfer.transfer.reduces();
  if (transfer.sum_to_come) sums_.push_back(ticket);
  if (transfer.transfer.op == Op::all_gather) {
    post_gather(transfer, MessageKind::data);
    copy_own_piece(transfer.transfer, messages_.rank());
  }
  if (transfer.transfer.op == Op::broadcast) post_broadcast(transfer);
  progress();
  monitor.totals.copy_seconds += seconds_between(begin, Clock::now());
  return ticket;
}

bool MpiRank::Engine::test(Ticket ticket) {
  require_alive();
  const Clock::time_point begin = Clock::now();
  progress();
  if (complete(ticket)) return true;
  if (slot(ticket).not_arrived == 0) monitor.totals.copy_seconds += seconds_between(begin, Clock::now());
  return false;
}

void MpiRank::Engine::wait(Ticket ticket) {
  require_alive();
  const WaitingNow waiting(monitor);
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_moved = begin;
  Clock::time_point now = begin;
  while (!complete(ticket)) {
    const bool moved = progress();
    if (!moved) pause(now - last_moved);
    const Clock::time_point before = std::exchange(now, Clock::now());
    if (slot(ticket).not_arrived == 0) monitor.totals.copy_seconds += seconds_between(before, now);
    if (moved) last_moved = now;
    if (now - last_moved < monitor.options.deadline || complete(ticket)) continue;
    give_up();
    throw CollectiveError(missed_deadline(now - last_moved, missing(slot(ticket)), monitor.options));
  }
}

bool MpiRank::Engine::complete(Ticket ticket) {
  const InFlight& transfer = slot(ticket);
  return transfer.ticket != ticket || (transfer.outstanding == 0 && !transfer.sum_to_come);
}

bool MpiRank::Engine::progress() {
  bool moved = false;
  for (;;) {
    const std::span<const Message> completed = messages_.poll();
    const bool advanced = !completed.empty();
    for (const Message& message : completed) on(message);
    if (!advance_sums() && !advanced) return moved;
    moved = true;
  }
}

/// Starts the next sum where there is room, and what follows a sum that is done.
bool MpiRank::Engine::advance_sums() {
  bool moved = false;
  for (;;) {
    if (sum_.idle()) {
      if (sums_.empty()) return moved;
      sum_.begin(sums_.front(), slot(sums_.front()).transfer);
      sums_.pop_front();
      moved = true;
    }
    if (!sum_.done()) return moved;
    InFlight& transfer = slot(sum_.ticket());
    transfer.sum_to_come = false;
    // Peers have received all that they sum: their results may now overwrite it.
    if (transfer.transfer.op == Op::all_reduce) post_gather(transfer, MessageKind::sum);
    sum_.end();
    moved = true;
  }
}

void MpiRank::Engine::on(const Message& message) {
  if (message.kind == MessageKind::piece) return sum_.on(message);
  InFlight& transfer = slot(message.transfer);
  --transfer.outstanding;
  if (message.sent) return;
  --transfer.expected_from[static_cast<std::size_t>(message.peer)];
  if (message.kind != MessageKind::arrival) return;
  transfer.arrived[static_cast<std::size_t>(message.peer)] = 1;
  --transfer.not_arrived;
}

void MpiRank::Engine::send(InFlight& to, MessageKind kind, int peer, const std::byte* data, std::int64_t bytes) {
  for (std::int64_t at = 0; at == 0 || at < bytes; at += monitor.options.message_bytes) {
    ++to.outstanding;
    messages_.send({.transfer = to.ticket, .kind = kind, .sent = true, .peer = peer}, data + at,
                   std::min(bytes - at, monitor.options.message_bytes));
  }
}

void MpiRank::Engine::receive(InFlight& to, MessageKind kind, int peer, std::byte* data, std::int64_t bytes) {
  for (std::int64_t at = 0; at == 0 || at < bytes; at += monitor.options.message_bytes) {
    ++to.outstanding;
    ++to.expected_from[static_cast<std::size_t>(peer)];
    messages_.receive({.transfer = to.ticket, .kind = kind, .sent = false, .peer = peer}, data + at,
                      std::min(bytes - at, monitor.options.message_bytes));
  }
}

void MpiRank::Engine::post_gather(InFlight& gather, MessageKind kind) {
  const std::int64_t element = gather.transfer.element_bytes();
  for (const ByteSegment& segment : gather.transfer.segments) {
    for (int step = 1; step < messages_.size(); ++step) {
      const int to = (messages_.rank() + step) % messages_.size();
      const int from = (messages_.rank() + messages_.size() - step) % messages_.size();
      if (segment.count(from) > 0)
        receive(gather, kind, from, segment.full + segment.begin(from) * element, segment.count(from) * element);
      if (segment.count(messages_.rank()) > 0)
        send(gather, kind, to, segment.local, segment.count(messages_.rank()) * element);
    }
  }
}

void MpiRank::Engine::post_broadcast(InFlight& broadcast) {
  const ByteSegment& segment = broadcast.transfer.segments[0];
  const int root = broadcast.transfer.root;
  if (segment.counts[0] == 0) return;
  if (messages_.rank() != root) return receive(broadcast, MessageKind::data, root, segment.local, segment.counts[0]);
  for (int peer = 0; peer < messages_.size(); ++peer)
    if (peer != root) send(broadcast, MessageKind::data, peer, segment.local, segment.counts[0]);
}

/// The peers that hold up a transfer, in words.
std::string MpiRank::Engine::missing(const InFlight& transfer) const {
  std::string text;
  for (int peer = 0; peer < messages_.size(); ++peer) {
    const auto index = static_cast<std::size_t>(peer);
    const bool came = transfer.arrived[index] != 0;
    if (peer == messages_.rank() || (came && transfer.expected_from[index] == 0 && !transfer.sum_to_come)) continue;
    text += message(text.empty() ? "rank " : ", rank ", peer, came ? " (has come, not finished)" : " (has not come)");
  }
  return text.empty() ? "peers to receive what this rank sends" : text;
}

}  // namespace fsdp::comm
