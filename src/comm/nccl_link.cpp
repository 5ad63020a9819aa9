// SPDX-License-Identifier: Apache-2.0
#include "nccl_link.hpp"

#include <exception>
#include <utility>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

using nccl::Result;
using namespace std::chrono_literals;

namespace {

/// Longest wait for the watch's report of a failure that NCCL has noticed.
constexpr auto until_reported = 1s;

bool failed(Result result) { return result != Result::success && result != Result::in_progress; }

std::string text_of(const nccl::Table& table, Result result) {
  const char* const more = table.last_error(nullptr);
  return message(table.error_string(result), *more != '\0' ? "; " : "", more);
}

}  // namespace

nccl::Id nccl::make_id(const nccl::Table& table) {
  nccl::Id id{};
  const Result result = table.get_unique_id(id);
  require<CollectiveError>(result == Result::success, "NCCL cannot make a unique id: ", text_of(table, result));
  return id;
}

std::string nccl::version_text(int code) { return message(code / 10000, ".", code / 100 % 100, ".", code % 100); }

void nccl::require_version(const Table& table) {
  const int found = table.version();
  require<InputError>(found >= table.least_version, "NCCL ", version_text(found), " is loaded, and this program needs ",
                      version_text(table.least_version),
                      " or newer; install one, or name its folder in LD_LIBRARY_PATH");
}

void NcclFamily::give_up() noexcept {
  const std::lock_guard lock(mutex);
  for (NcclLink* const link : links) link->start_abort();
}

NcclLink::NcclLink(const nccl::Table& table, const nccl::Seat& seat, const Options& options, const NcclStart& start)
    : NcclLink(table, std::shared_ptr<NcclFamily>(new NcclFamily{start, options.start_deadline}), nullptr) {
  if (start.watch != nullptr)
    start.watch->when_blocked([family = std::weak_ptr(family_)] {
      if (const auto left = family.lock()) left->give_up();
    });
  require_nccl_success(locked([&] { return table_.init(comm_, seat.size, seat.id, seat.rank); }), "initialisation");
  settle("initialisation", Deadline(0), true);
}

NcclLink::NcclLink(const nccl::Table& table, std::shared_ptr<NcclFamily> family, nccl::Comm comm)
    : table_(table), comm_(comm), family_(std::move(family)) {
  locked([&] { family_->links.push_back(this); });
}

std::unique_ptr<NcclLink> NcclLink::duplicate(const nccl::Table& table, nccl::Comm host, int rank,
                                              const Options& options) {
  std::shared_ptr<NcclFamily> family(new NcclFamily{NcclStart{}, options.start_deadline});
  std::unique_ptr<NcclLink> made(new NcclLink(table, std::move(family), nullptr));
  Result result = table.split(host, 0, rank, made->made_);
  const auto waited = poll_in_vain(options.start_deadline, [&] {
    Result state = result;
    if (!failed(result)) result = table.async_error(host, state);
    if (!failed(result)) result = state;
    return result != Result::in_progress;
  });
  if (waited || failed(result)) {
    static_cast<void>(made.release());  // NCCL may still set made_
    throw CollectiveError(message("NCCL: a split of the adopted communicator ",
                                  waited ? "took longer than the start's deadline, " : "failed: ",
                                  waited ? in_seconds(options.start_deadline) : text_of(table, result)));
  }
  made->comm_ = std::exchange(made->made_, nullptr);
  made->settle("a split of the adopted communicator", Deadline(0), true);
  return made;
}

NcclLink::~NcclLink() {
  locked([&] {
    std::erase(family_->links, this);
    start_abort();
  });
  finish_abort(20s);
}

void NcclLink::issue(std::span<const nccl::Call> calls, nccl::Stream stream, Deadline deadline) {
  check();
  if (calls.empty()) return;
  const Result result = on_comm([&] {
    Result worst = table_.group_start();
    if (failed(worst)) return worst;
    for (const nccl::Call& call : calls)
      if (const Result called = table_.call(call, comm_, stream); failed(called)) worst = called;
    const Result ended = table_.group_end();  // also after an error, because the group is a state of the thread
    return failed(worst) ? worst : ended;
  });
  require_nccl_success(result, "a group");
  settle("a group", deadline, !connected_);
  connected_ = true;
}

void NcclLink::check() { require_nccl_success(state(), "a collective"); }

bool NcclLink::has_lost_peer() {
  const Result found = state();
  if (found != Result::remote_error) require_nccl_success(found, "a collective");
  return found == Result::remote_error;
}

Result NcclLink::own_state() {
  Result found = Result::success;
  const Result asked = on_comm([&] { return table_.async_error(comm_, found); });
  return failed(asked) ? asked : found;
}

Result NcclLink::state() {
  const Result own = own_state();
  if (failed(own)) return own;
  if (family_->has_lost_peer()) return Result::remote_error;
  for (NcclLink* const link : family_->links)
    if (const Result other = link != this && link->alive() ? link->own_state() : Result::success; failed(other))
      return other;
  return own;
}

std::unique_ptr<NcclLink> NcclLink::split(int color, int key, Deadline deadline) {
  check();
  require_nccl_success(on_comm([&] { return table_.split(comm_, color, key, made_); }), "a split");
  settle("a split", deadline, true);
  auto part = std::unique_ptr<NcclLink>(new NcclLink(table_, family_, std::exchange(made_, nullptr)));
  part->settle("a split", deadline, true);
  return part;
}

void* NcclLink::register_memory(void* data, std::size_t bytes) {
  void* handle = nullptr;
  if (alive() && table_.register_memory != nullptr)
    require_nccl_success(on_comm([&] { return table_.register_memory(comm_, data, bytes, handle); }),
                         "registering memory");
  return handle;
}

void NcclLink::deregister_memory(void* handle) noexcept {
  if (handle != nullptr) on_comm([&] { return table_.deregister_memory(comm_, handle); });
}

void NcclLink::end(Deadline deadline) noexcept {
  if (!alive()) return;
  Result state = on_comm([&] { return table_.finalize(comm_); });
  const auto waited = poll_in_vain(deadline, [&] {
    if (state == Result::in_progress) state = own_state();
    return state != Result::in_progress;
  });
  if (waited || failed(state)) return give_up();
  const nccl::Comm finalized = locked([&] { return std::exchange(comm_, nullptr); });
  if (finalized != nullptr) table_.destroy(finalized);
}

void NcclLink::start_abort() noexcept {
  if (comm_ == nullptr) return;
  const auto end_kernels = [call = table_.abort, comm = std::exchange(comm_, nullptr)] { call(comm); };
  try {
    std::packaged_task<void()> task(end_kernels);
    aborted_ = task.get_future();
    aborting_ = std::thread(std::move(task));
  } catch (const std::exception&) {  // no thread is available: abort here, since the kernels must end
    end_kernels();
  }
}

void NcclLink::finish_abort(Deadline limit) noexcept {
  if (!locked([&] { return aborting_.joinable(); })) return;  // the watch's thread may have started the abort
  if (aborted_.wait_until(deadline_after(Clock::now(), limit)) == std::future_status::ready)
    aborting_.join();
  else
    aborting_.detach();
}

void NcclLink::fail(const std::string& reason) {
  family_->failure = reason;
  if (family_->start.watch != nullptr) family_->start.watch->report(reason);
  give_up();
  throw CollectiveError(reason);
}

void NcclLink::require_nccl_success(Result result, std::string_view what) {
  if (!failed(result)) return;
  const std::string& before = family_->failure;
  require<CollectiveError>(before.empty(), "the NCCL communicator cannot be used: ", before);
  const bool waits = result == Result::remote_error && family_->start.watch != nullptr;
  if (poll_until(Clock::now() + (waits ? until_reported : 0s), [&] { return family_->has_lost_peer(); }))
    fail(family_->start.watch->failure());
  require<CollectiveError>(result != ended, "the NCCL communicator cannot be used: it has ended");
  fail(message("NCCL: ", what, " failed: ", text_of(table_, result)));
}

/// Waits until the last call has completed: communicators are nonblocking, so calls may return before they complete.
/// A call that connects ranks may take what is left of the start.
void NcclLink::settle(std::string_view what, Deadline deadline, bool connects) {
  const Clock::time_point begin = Clock::now(), usual = deadline_after(begin, deadline);
  const Clock::time_point start_ends = deadline_after(family_->start.began, family_->start_deadline);
  const bool starts = connects && (start_ends > usual || deadline.count() == 0);
  const bool settled = poll_until(starts ? start_ends : usual, [&] {
    const Result own = own_state();
    require_nccl_success(own == Result::in_progress ? state() : own, what);
    return own != Result::in_progress;
  });
  if (settled) return;
  fail(message("waited ", in_seconds(Clock::now() - (starts ? family_->start.began : begin)),
               " for the other ranks in NCCL's ", what,
               starts ? "; the deadline of the start is " : "; the deadline is ",
               in_seconds(starts ? family_->start_deadline : deadline)));
}

}  // namespace fsdp::comm
