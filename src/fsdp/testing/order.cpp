// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/testing/queued/order.hpp>

#include <algorithm>
#include <utility>

namespace fsdp::testing {

bool Clock::join(const Clock& other) {
  if (knows(other)) return false;
  if (other.positions_.size() > positions_.size()) positions_.resize(other.positions_.size());
  for (std::size_t i = 0; i < other.positions_.size(); ++i)
    positions_[i] = std::max(positions_[i], other.positions_[i]);
  return true;
}

bool Clock::knows(const Clock& other) const {
  for (std::size_t i = 0; i < other.positions_.size(); ++i)
    if (other.positions_[i] > of(i)) return false;
  return true;
}

MemoryOrder& MemoryOrder::instance() {
  static MemoryOrder order;
  return order;
}

/// Returns the range that begins at `at`, after splitting the range that contains `at` if needed. If no range contains
/// `at`, returns the next range.
MemoryOrder::Ranges::iterator MemoryOrder::split(std::uintptr_t at) {
  auto next = ranges_.lower_bound(at);
  if (next != ranges_.end() && next->first == at) return next;
  if (next == ranges_.begin()) return next;
  const auto around = std::prev(next);
  if (around->second.end <= at) return next;
  History rest = around->second;
  around->second.end = at;
  return ranges_.emplace(at, std::move(rest)).first;
}

void MemoryOrder::check(const Moment& earlier, const Moment& now, const Clock& clock, const char* how) {
  constexpr std::size_t most = 4;
  if (earlier.position == 0 || clock.of(earlier.queue) >= earlier.position || races_.size() >= most) return;
  races_.push_back(now.what + how + earlier.what + ", and no event orders them");
}

void MemoryOrder::touch(const void* begin, std::int64_t bytes, bool writes, const Moment& moment, const Clock& clock) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t end = at + static_cast<std::uintptr_t>(bytes);
  split(end);
  auto range = split(at);
  for (; range != ranges_.end() && range->first < end; ++range) {
    History& history = range->second;
    check(history.written, moment, clock, writes ? " overwrites what was written by " : " reads what was written by ");
    if (writes) {
      for (const Moment& read : history.reads) check(read, moment, clock, " overwrites what was read by ");
      history.written = moment;
      history.reads.clear();
    } else {
      std::erase_if(history.reads, [&](const Moment& read) { return clock.of(read.queue) >= read.position; });
      history.reads.push_back(moment);
    }
  }
}

void MemoryOrder::watch(const void* begin, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  ranges_.emplace(at, History{.end = at + static_cast<std::uintptr_t>(bytes), .written = {}, .reads = {}});
}

void MemoryOrder::forget(const void* begin, std::int64_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const auto last = split(at + static_cast<std::uintptr_t>(bytes));
  ranges_.erase(split(at), last);
}

std::vector<std::string> MemoryOrder::take_races() {
  const std::lock_guard lock(mutex_);
  return std::exchange(races_, {});
}

}  // namespace fsdp::testing
