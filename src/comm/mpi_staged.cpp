// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/mpi_staged.hpp>

#include <algorithm>
#include <chrono>

#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

struct StagedMpiRank::Range {
  std::byte* device = nullptr;
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  ///< byte offset in the staging memory
  bool read = false;        ///< whether the collective reads it
  bool written = false;
};

Ticket StagedMpiRank::start() {
  if (transfer_.values) {
    start_on_host(transfer_);
    return 0;
  }
  for (const AnyEvent& event : std::exchange(after_, {})) queue_.wait(event);
  const std::vector<Range> staged = ranges(transfer_);
  std::int64_t end = 0;
  for (const Range& range : staged) end = std::max(end, range.offset + range.bytes);
  if (end > staging_bytes_) staging_ = queue_.allocate_on_host(staging_bytes_ = end);
  for (const Range& range : staged)
    if (range.read) queue_.move(range.device, staging_.get() + range.offset, range.bytes);
  wait_for(queue_.record());

  Transfer on_host = transfer_;
  for (std::size_t index = 0; index < on_host.segments.size(); ++index) {
    const Range& full = staged[2 * index];
    const Range& local = staged[2 * index + 1];
    on_host.segments[index].full = staging_.get() + full.offset;
    on_host.segments[index].local = staging_.get() + local.offset;
  }
  start_on_host(on_host);

  for (const Range& range : staged)
    if (range.written) queue_.move(staging_.get() + range.offset, range.device, range.bytes);
  wait_for(queue_.record());
  return 0;
}

/// Returns two ranges per segment, `full` and `local`. `local` aliases its place in `full` if it does so on the device.
std::vector<StagedMpiRank::Range> StagedMpiRank::ranges(const Transfer& transfer) const {
  std::vector<Range> found;
  std::int64_t end = 0;
  for (const ByteSegment& segment : transfer.segments) {
    const std::int64_t before = segment.begin(rank()) * transfer.element_bytes();
    const bool in_place = segment.local == segment.full + before;
    const bool adds = transfer.op == Op::reduce_scatter && transfer.write == Write::accumulate;
    Range full{.device = segment.full,
               .bytes = segment.total() * transfer.element_bytes(),
               .offset = end,
               .read = transfer.reduces(),
               .written = transfer.op != Op::reduce_scatter};
    Range local{.device = segment.local,
                .bytes = segment.local_total(rank()) * transfer.element_bytes(),
                .offset = in_place ? full.offset + before : full.offset + full.bytes,
                .read = transfer.copies() || adds,
                .written = transfer.op == Op::reduce_scatter};
    found.push_back(full);
    found.push_back(local);
    end = std::max(full.offset + full.bytes, local.offset + local.bytes);
  }
  return found;
}

void StagedMpiRank::start_on_host(const Transfer& transfer) {
  host_->prepare() = transfer;
  host_->wait(host_->start());
}

void StagedMpiRank::wait_for(const AnyEvent& event) {
  const auto begin = std::chrono::steady_clock::now();
  const Options& options = monitor().options;
  if (!poll_until(deadline_after(begin, options.device_deadline), [&] { return queue_.happened(event); }))
    throw CollectiveError(missed_device_deadline(std::chrono::steady_clock::now() - begin, options));
}

}  // namespace fsdp::comm
