// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/threads.hpp>

#include <algorithm>
#include <exception>
#include <thread>

#include <tessera/comm/poll.hpp>

#include "threads_group.hpp"

namespace fsdp::comm {

FSDP_BACKEND(template, ThreadsRank, device::Cpu, Threads<>)

ThreadsRank::ThreadsRank(std::shared_ptr<ThreadsGroup> group, int rank, const Options& options, End end)
    : group_(std::move(group)),
      rank_(rank),
      end_(end),
      exceptions_(std::uncaught_exceptions()),
      copied_(static_cast<std::size_t>(group_->size())),
      contributions_(static_cast<std::size_t>(group_->size())),
      done_(ThreadsPeer::depth) {
  monitor_.rank = rank;
  monitor_.options = options;
}

ThreadsRank::~ThreadsRank() {
  if (std::uncaught_exceptions() > exceptions_) {
    if (end_ == End::is_reported_by_launcher) return;
    group_->world->poison(world_rank(), "an exception ended it");
    let_peers_finish_reading();
    return;
  }
  try {  // before its memory and queue are destroyed, all transfers and the queue finish
    if (queue_ && next_ > 0) {
      wait_for(done(next_ - 1));
      wait_for(queue_.record());
    }
  } catch (const std::exception&) {  // the failure was reported, and all queues have been waited for
  }
  own().left.store(true);
  group_->world->notify();
}

int ThreadsRank::size() const { return group_->size(); }

Transfer& ThreadsRank::prepare() {
  if (next_ >= ThreadsPeer::depth) {
    const Ticket oldest = next_ - ThreadsPeer::depth;
    wait(oldest);
    if (queue_) done(oldest);
  }
  return own().transfers[next_ % ThreadsPeer::depth];
}

Ticket ThreadsRank::start() {
  throw_if_poisoned();
  const Ticket ticket = next_++;
  if (on_queue(own_transfer(ticket)))
    own().milestones[ticket % ThreadsPeer::depth].published = std::exchange(after_, {});
  own().published.store(next_);
  group_->world->notify();
  progress();
  return ticket;
}

bool ThreadsRank::test(Ticket ticket) {
  progress();
  if (complete(ticket)) return true;
  throw_if_poisoned();
  return false;
}

void ThreadsRank::wait(Ticket ticket) {
  ThreadsWorld& world = *group_->world;
  static const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const Clock::time_point begin = Clock::now();
  Clock::time_point deadline = deadline_after(begin, monitor_.options.deadline);
  for (;;) {
    const std::uint64_t seen = world.version();
    const bool expired = Clock::now() >= deadline;
    const bool moved = progress();
    if (complete(ticket)) return;
    throw_if_poisoned();
    if (moved) {
      deadline = deadline_after(Clock::now(), monitor_.options.deadline);
      continue;
    }
    if (const std::string left = missing(ticket, true); !left.empty())
      fail(message(left,
                   " has ended and will not take part; every rank must make the same collectives in the same order"));
    if (expired) fail(missed_deadline(Clock::now() - begin, missing(ticket, false), monitor_.options));
    world.await_change(seen, size() <= cores, deadline);
  }
}

void ThreadsRank::abandon(Ticket) noexcept {
  group_->world->poison(world_rank(), "an exception ended it while a collective was in flight");
  let_peers_finish_reading();
}

/// Advances transfers in the order in which they were started, as far as the peers' progress allows. Returns whether
/// any transfer advanced.
bool ThreadsRank::progress() {
  bool moved = false;
  try {
    while (active_ < next_) {
      const Reading reading(own().reading);
      if (group_->world->poisoned()) break;
      const Ticket before = active_;
      const Transfer& transfer = own_transfer(active_);
      const bool advanced = advance(transfer);
      moved = moved || advanced;
      if (advanced && on_queue(transfer)) own().latest = queue_.record();
      if (active_ == before) break;
    }
  } catch (const CollectiveError& mismatch) {
    fail(mismatch.what());
  }
  return moved;
}

bool ThreadsRank::advance(const Transfer& transfer) {
  if (transfer.copies()) return gather_from_ready(transfer, &ThreadsRank::published);
  const std::uint64_t reduced_step = 2 * active_ + 1;
  const bool gathers_sums = transfer.op == Op::all_reduce;
  const bool has_reduced = gathers_sums && own().finished.load() >= reduced_step;
  if (!has_reduced) {
    if (!all_published()) return false;
    for (int peer = 0; peer < size(); ++peer) static_cast<void>(active_transfer_of(peer));  // checks that all match
    if (transfer.reduces()) {
      sum_own_pieces(transfer);
    } else if (transfer.op == Op::broadcast && transfer.root != rank_) {
      const Stopwatch copying(monitor_.totals.copy_seconds);
      copy_bytes(transfer.segments[0].local, active_transfer_of(transfer.root).segments[0].local,
                 transfer.segments[0].count(0), monitor_.options.threads);
    }
  }
  if (!has_reduced) set_finished(gathers_sums ? reduced_step : reduced_step + 1);
  // A peer that has summed its pieces does not read contributions any more: its piece may be read, and this rank's copy
  // of that piece may be overwritten.
  return !gathers_sums || gather_from_ready(transfer, &ThreadsRank::reduced) || !has_reduced;
}

bool ThreadsRank::gather_from_ready(const Transfer& transfer, bool (ThreadsRank::*ready)(int) const) {
  bool moved = false;
  bool all = true;
  for (int step = 0; step < size(); ++step) {
    const int peer = (rank_ + step) % size();  // every rank starts at a different peer
    char& copied = copied_[static_cast<std::size_t>(peer)];
    if (copied != 0) continue;
    if (!(this->*ready)(peer)) {
      all = false;
      continue;
    }
    copy_from(transfer, peer);
    copied = 1;
    moved = true;
  }
  if (all) {
    std::fill(copied_.begin(), copied_.end(), char{0});
    set_finished(2 * active_ + 2);
  }
  return moved || all;
}

bool ThreadsRank::published(int peer) const { return group_->peer(peer).published.load() > active_; }

bool ThreadsRank::reduced(int peer) const { return group_->peer(peer).finished.load() >= 2 * active_ + 1; }

bool ThreadsRank::all_published() const {
  for (int peer = 0; peer < size(); ++peer)
    if (!published(peer)) return false;
  return true;
}

void ThreadsRank::sum_own_pieces(const Transfer& transfer) {
  const Stopwatch copying(monitor_.totals.copy_seconds);
  for (int peer = 0; peer < size(); ++peer) join(transfer, peer);
  for (std::size_t index = 0; index < transfer.segments.size(); ++index) {
    const ByteSegment& segment = transfer.segments[index];
    const std::int64_t offset = segment.begin(rank_) * transfer.element_bytes();
    for (int peer = 0; peer < size(); ++peer)
      contributions_[static_cast<std::size_t>(peer)] = {.data = active_transfer_of(peer).segments[index].full + offset};
    auto* const own = reinterpret_cast<float*>(segment.local);
    if (on_queue(transfer))
      queue_.sum(contributions_, transfer.wire, segment.count(rank_), transfer.write, own);
    else
      sum_in_order(contributions_, transfer.wire, segment.count(rank_), transfer.write, own, monitor_.options.threads);
  }
}

void ThreadsRank::copy_from(const Transfer& transfer, int peer) {
  const Stopwatch copying(monitor_.totals.copy_seconds);
  const Transfer& from = active_transfer_of(peer);
  join(transfer, peer);
  for (std::size_t index = 0; index < transfer.segments.size(); ++index) {
    const ByteSegment& segment = transfer.segments[index];
    const ByteSegment& source = from.segments[index];
    if (transfer.op == Op::all_to_all)
      require_same_counts(monitor_, {.exchange = index,
                                     .from = peer,
                                     .to = rank_,
                                     .sent = source.sent_count(peer, rank_),
                                     .received = segment.count(peer)});
    std::byte* const place = segment.full + segment.begin(peer) * transfer.element_bytes();
    const std::byte* const piece = source.local + source.sent_begin(rank_) * transfer.element_bytes();
    const std::int64_t bytes = segment.count(peer) * transfer.element_bytes();
    if (place == piece) continue;
    if (on_queue(transfer))
      queue_.move(piece, place, bytes);
    else
      copy_bytes(place, piece, bytes, monitor_.options.threads);
  }
}

/// Returns a peer's description of the active transfer. Throws CollectiveError unless it matches this rank's.
const Transfer& ThreadsRank::active_transfer_of(int peer) const {
  const Transfer& mine = own_transfer(active_);
  const Transfer& theirs = group_->peer(peer).transfers[active_ % ThreadsPeer::depth];
  require_same(world_rank(), mine, monitor_.world_rank_of(peer), theirs);
  return theirs;
}

void ThreadsRank::set_finished(std::uint64_t step) {
  const bool last = step == 2 * active_ + 2;
  if (on_queue(own_transfer(active_))) {
    Milestones& milestones = own().milestones[active_ % ThreadsPeer::depth];
    (last ? milestones.finished : milestones.reduced) = queue_.record();
  }
  own().finished.store(step);
  if (last) ++active_;
  group_->world->notify();
}

bool ThreadsRank::complete(Ticket ticket) const {
  for (int peer = 0; peer < size(); ++peer)
    if (group_->peer(peer).finished.load() < 2 * ticket + 2) return false;
  return true;
}

/// Returns the names of the peers that a transfer waits for; with `only_left`, only those that have ended.
std::string ThreadsRank::missing(Ticket ticket, bool only_left) const {
  std::string text;
  for (int peer = 0; peer < size(); ++peer) {
    ThreadsPeer& other = group_->peer(peer);
    const bool left = other.left.load();  // read before `finished`, which is final once `left` is set
    if (peer == rank_ || (only_left && !left) || other.finished.load() >= 2 * ticket + 2) continue;
    const bool came = other.published.load() > ticket;
    text += (text.empty() ? "" : ", ") + monitor_.name_of(peer, only_left ? ""
                                                                : came    ? "has come, not finished"
                                                                          : "has not come");
  }
  return text;
}

ThreadsPeer& ThreadsRank::own() const { return group_->peer(rank_); }

/// Returns this rank's description of a transfer in flight.
const Transfer& ThreadsRank::own_transfer(Ticket ticket) const { return own().transfers[ticket % ThreadsPeer::depth]; }

void ThreadsRank::let_peers_finish_reading() const noexcept {
  for (int peer = 0; peer < size(); ++peer)
    while (peer != rank_ && group_->peer(peer).reading.load()) std::this_thread::yield();
  if (!queue_) return;
  // Waits for all ranks' queues until the deadline. No more work is enqueued at this point.
  const Clock::time_point deadline = deadline_after(Clock::now(), monitor_.options.deadline);
  for (int peer = 0; peer < size(); ++peer) {
    try {
      poll_until(deadline, [&] { return queue_.happened(group_->peer(peer).latest); });
    } catch (const std::exception&) {  // a lost device no longer reads memory
    }
  }
}

void ThreadsRank::fail(const std::string& reason) {
  group_->world->poison(world_rank(), reason);
  let_peers_finish_reading();
  throw CollectiveError(reason);
}

void ThreadsRank::throw_if_poisoned() const {
  const ThreadsWorld& world = *group_->world;
  if (!world.poisoned()) return;
  let_peers_finish_reading();
  throw CollectiveError(message("rank ", world.failed_rank(), " failed: ", world.failure()));
}

/// Makes this rank's queue wait until it may read a peer's tensors of the active transfer. An all_reduce waits for the
/// peer's caller events before it sums, and for the peer's sums before it gathers.
void ThreadsRank::join(const Transfer& transfer, int peer) {
  if (!on_queue(transfer)) return;
  const Milestones& theirs = group_->peer(peer).milestones[active_ % ThreadsPeer::depth];
  if (own().finished.load() == 2 * active_ + 1) {
    queue_.wait(theirs.reduced);
  } else {
    for (const AnyEvent& event : theirs.published) queue_.wait(event);
  }
}

AnyEvent ThreadsRank::done(Ticket ticket) {
  wait(ticket);
  for (; joined_ <= ticket; ++joined_) {
    AnyEvent& event = done_[joined_ % ThreadsPeer::depth];
    event = nullptr;
    if (!on_queue(own_transfer(joined_))) continue;
    for (int peer = 0; peer < size(); ++peer)
      joins_.wait(group_->peer(peer).milestones[joined_ % ThreadsPeer::depth].finished);
    event = last_done_ = joins_.record();
  }
  // An old transfer's slot has been reused; a later event on the same queue implies its completion.
  return joined_ - ticket > ThreadsPeer::depth ? last_done_ : done_[ticket % ThreadsPeer::depth];
}

void ThreadsRank::wait_for(const AnyEvent& event) {
  const auto waited = poll_in_vain(monitor_.options.device_deadline, [&] {
    if (queue_.happened(event)) return true;
    progress();
    throw_if_poisoned();
    return false;
  });
  if (waited) fail(missed_device_deadline(*waited, monitor_.options));
}

}  // namespace fsdp::comm
