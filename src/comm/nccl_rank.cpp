// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/nccl_rank.hpp>

#include <algorithm>
#include <exception>
#include <utility>

#include <tessera/comm/poll.hpp>

#include "nccl_link.hpp"

namespace fsdp::comm {
namespace {

constexpr std::size_t events_kept = 64;
/// Longest wait for data that a peer sent before it aborted, such as an error that all ranks are to throw.
constexpr std::chrono::milliseconds on_its_way{500};
constexpr int first_with_launch_order = 22600;  ///< the version with NCCL_LAUNCH_ORDER_IMPLICIT

/// What one rank contributes to a split.
struct Share {
  int color = 0;
  nccl::LaunchOrder order = nccl::LaunchOrder::unknown;
  int version = 0;

  bool is_ordered() const { return order == nccl::LaunchOrder::implicit && version >= first_with_launch_order; }
};

/// Returns why the communicators of a rank with this share have no common order of launches.
std::string reason_of(const Share& share) {
  if (share.version < first_with_launch_order)
    return message("NCCL is ", nccl::version_text(share.version),
                   ", and the first with that order is 2.26; update NCCL");
  if (share.order == nccl::LaunchOrder::none) return "NCCL reads NCCL_LAUNCH_ORDER_IMPLICIT as 0; unset it";
  return "the host program has not passed it; set NCCL_LAUNCH_ORDER_IMPLICIT=1 before the first call of NCCL and pass "
         ".launch_order = implicit";
}

std::string lost_promise(nccl::Nvls nvls) {
  if (nvls == nccl::Nvls::off) return "";
  return message(
      nvls == nccl::Nvls::unknown ? "the host program has not passed .nvls = off" : "NCCL_NVLS_ENABLE is not 0",
      ": NCCL may add floats in another order in each call, so that equal runs may differ in the last bits; set "
      "NCCL_NVLS_ENABLE=0, or take :pieces=V or bf16:wire=bf16");
}

}  // namespace

NcclRank::NcclRank(const nccl::Table& table, const nccl::Seat& seat, const Options& options, const NcclStart& start)
    : NcclRank(std::make_shared<NcclLink>(table, seat, options, start), seat.rank, seat.size, seat.settings, options) {}

std::unique_ptr<NcclRank> NcclRank::adopt(const nccl::Table& table, nccl::Comm host, const nccl::Settings& settings,
                                          const Options& options) {
  int rank = 0, size = 0;
  require<InputError>(host != nullptr && table.rank(host, rank) == nccl::Result::success &&
                          table.size(host, size) == nccl::Result::success,
                      "NCCL: the communicator to adopt is null or has failed; adopt one that NCCL has initialised");
  return std::unique_ptr<NcclRank>(
      new NcclRank(NcclLink::duplicate(table, host, rank, options), rank, size, settings, options));
}

NcclRank::NcclRank(std::shared_ptr<NcclLink> link, int rank, int size, const nccl::Settings& settings,
                   const Options& options)
    : link_(std::move(link)),
      size_(size),
      settings_(settings),
      exceptions_(std::uncaught_exceptions()),
      done_(events_kept) {
  monitor_.rank = rank;
  monitor_.options = options;
  monitor_.library =
      message("NCCL ", nccl::version_text(link_->table().version()), settings.text.empty() ? "" : ", ", settings.text);
  if (size > 1) monitor_.lost_promise = lost_promise(settings.nvls);
}

NcclRank::~NcclRank() {
  if (std::uncaught_exceptions() > exceptions_) link_->give_up();
  try {
    if (link_->alive() && next_ > 0) wait_for(queue_.record());
    link_->end(monitor_.options.deadline);
  } catch (const std::exception&) {  // aborted: the failure was reported before, or the awaited work reports it
  }
  link_->finish_abort(monitor_.options.deadline);  // before the queue that its kernels run on is destroyed
}

void NcclRank::move_with(AnyQueue queue) {
  queue_ = std::move(queue);
  scratch_ = queue_.allocate(scratch_bytes());
  values_ = queue_.allocate_on_host(value_bytes);
}

Ticket NcclRank::start() {
  link_->check();
  AnyEvent& done = done_[next_ % done_.size()];
  if (transfer_.values) {
    move_values();
    done = nullptr;
  } else {
    for (const AnyEvent& event : std::exchange(after_, {})) queue_.wait(event);
    enqueue_collective({.rank = rank(),
                        .size = size_,
                        .link = *link_,
                        .queue = queue_,
                        .staging = scratch_.get(),
                        .staging_bytes = staging_bytes,
                        .deadline = monitor_.options.deadline},
                       transfer_);
    done = last_done_ = queue_.record();
  }
  return next_++;
}

void NcclRank::move_values() {
  if (transfer_.op == Op::barrier) {
    std::vector<std::byte> all(static_cast<std::size_t>(size()));
    const std::byte here{1};
    return gather_values(&here, all.data(), 1);
  }
  require(transfer_.op == Op::all_gather || transfer_.op == Op::broadcast, "NCCL: ", name_of(transfer_.op),
          " of small values is a gather");
  const ByteSegment& values = transfer_.segments[0];
  if (transfer_.op == Op::all_gather) return gather_values(values.local, values.full, values.count(0));
  broadcast_value(values.local, values.count(0));
}

/// Host and device buffers have the same layout: this rank's values, then all ranks' values.
void NcclRank::gather_values(const std::byte* mine, std::byte* all, std::int64_t bytes) {
  std::byte* const device = scratch_.get() + staging_bytes;
  std::byte* const host = values_.get();
  const std::int64_t most = std::max<std::int64_t>(value_bytes / (size() + 1), 1);
  for (std::int64_t begin = 0; begin < bytes; begin += most) {
    const std::int64_t part = std::min(most, bytes - begin);
    const nccl::Call gather{.kind = nccl::Call::Kind::all_gather, .from = device, .to = device + part, .count = part};
    std::copy_n(mine + begin, part, host);
    queue_.move(host, device, part);
    link_->issue({&gather, 1}, queue_.native(), monitor_.options.deadline);
    queue_.move(gather.to, host + part, part * size());
    wait_for(queue_.record());
    for (int peer = 0; peer < size(); ++peer) std::copy_n(host + part * (peer + 1), part, all + peer * bytes + begin);
  }
}

void NcclRank::broadcast_value(std::byte* data, std::int64_t bytes) {
  std::byte* const device = scratch_.get() + staging_bytes;
  std::byte* const host = values_.get();
  const bool sends = rank() == transfer_.root;
  for (std::int64_t begin = 0; begin < bytes; begin += value_bytes) {
    const std::int64_t part = std::min(value_bytes, bytes - begin);
    const nccl::Call send{
        .kind = nccl::Call::Kind::broadcast, .from = device, .to = device, .count = part, .peer = transfer_.root};
    if (sends) {
      std::copy_n(data + begin, part, host);
      queue_.move(host, device, part);
    }
    link_->issue({&send, 1}, queue_.native(), monitor_.options.deadline);
    if (!sends) queue_.move(device, host, part);
    wait_for(queue_.record());
    if (!sends) std::copy_n(host, part, data + begin);
  }
}

bool NcclRank::test(Ticket) {
  link_->check();
  return true;
}

void NcclRank::abandon(Ticket) noexcept { link_->give_up(); }

std::unique_ptr<NcclRank> NcclRank::split(int color) {
  const Share mine{.color = color, .order = settings_.launch_order, .version = link_->table().version()};
  std::vector<Share> shares(static_cast<std::size_t>(size()));
  gather_values(reinterpret_cast<const std::byte*>(&mine), reinterpret_cast<std::byte*>(shares.data()), sizeof mine);
  std::vector<int> ranks;
  for (int peer = 0; peer < size(); ++peer) {
    const Share& share = shares[static_cast<std::size_t>(peer)];
    require<InputError>(
        size() == 1 || share.is_ordered(),
        "a mesh of several axes needs one order of launches for all its NCCL communicators, and on rank ", peer, " ",
        reason_of(share), ", or take a strategy of one axis");
    if (share.color == color) ranks.push_back(peer);
  }
  // NCCL does not accept negative colors, so the first rank with this color represents it.
  std::shared_ptr<NcclLink> part = link_->split(ranks.front(), rank(), monitor_.options.deadline);
  const auto position = static_cast<int>(std::ranges::find(ranks, rank()) - ranks.begin());
  std::unique_ptr<NcclRank> made(
      new NcclRank(std::move(part), position, static_cast<int>(ranks.size()), settings_, monitor_.options));
  made->monitor_.follow(monitor_, ranks);
  return made;
}

void NcclRank::wait_for(const AnyEvent& event) {
  const auto happened = [&] { return queue_.happened(event); };
  const auto waited =
      poll_in_vain(monitor_.options.device_deadline, [&] { return happened() || link_->has_lost_peer(); });
  if (waited) link_->fail(missed_device_deadline(*waited, monitor_.options, " or the other ranks"));
  if (!poll_until(Clock::now() + on_its_way, happened)) link_->check();
}

std::shared_ptr<std::byte> NcclRank::shared_memory(std::int64_t bytes) {
  const nccl::Table& table = link_->table();
  if (table.mem_alloc == nullptr || bytes == 0) return nullptr;
  void* data = nullptr;
  require<MemoryError>(table.mem_alloc(data, static_cast<std::size_t>(bytes)) == nccl::Result::success, "NCCL: ", bytes,
                       " bytes of memory that it can register were asked for and not to be had");
  // The returned pointer owns the memory and the link; its deleter removes the registration before both.
  std::shared_ptr<std::byte> memory(static_cast<std::byte*>(data),
                                    [free = table.mem_free](std::byte* freed) { free(freed); });
  const std::int64_t most = std::min<std::int64_t>(bytes, 1 << 20);
  const std::shared_ptr<std::byte> zeros = queue_.allocate(most);
  for (std::int64_t begin = 0; begin < bytes; begin += most)
    queue_.move(zeros.get(), memory.get() + begin, std::min(most, bytes - begin));
  wait_for(queue_.record());
  queue_.synchronize();  // already complete; the call is for devices that check accesses
  return register_memory(memory, bytes);
}

std::shared_ptr<std::byte> NcclRank::register_memory(const std::shared_ptr<std::byte>& memory, std::int64_t bytes) {
  void* const registration = link_->register_memory(memory.get(), static_cast<std::size_t>(bytes));
  return std::shared_ptr<std::byte>(
      memory.get(), [memory, link = link_, registration](std::byte*) { link->deregister_memory(registration); });
}

}  // namespace fsdp::comm
