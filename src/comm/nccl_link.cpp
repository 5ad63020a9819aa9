// SPDX-License-Identifier: Apache-2.0
#include "nccl_link.hpp"

#include <exception>
#include <utility>

#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

using nccl::Result;

nccl::Id nccl::make_id(const nccl::Table& table) {
  nccl::Id id{};
  const Result result = table.get_unique_id(id);
  require<CollectiveError>(result == Result::success, "NCCL cannot make a unique id: ", table.error_string(result));
  return id;
}

void nccl::require_version(const Table& table) {
  const auto text = [](int code) { return message(code / 10000, ".", code % 10000 / 100, ".", code % 100); };
  const int found = table.version();
  require<InputError>(found >= table.least_version, "NCCL ", text(found), " is loaded, and this program needs ",
                      text(table.least_version), " or newer; install one, or name its folder in LD_LIBRARY_PATH");
}

NcclLink::NcclLink(const nccl::Table& table, const nccl::Seat& seat, Deadline deadline) : NcclLink(table, nullptr) {
  require_nccl_success(table_.init(comm_, seat.size, seat.id, seat.rank), "initialisation");
  settle("initialisation", deadline);
}

NcclLink::~NcclLink() {
  give_up();
  finish_abort(std::chrono::seconds(20));
}

void NcclLink::issue(std::span<const nccl::Call> calls, nccl::Stream stream, Deadline deadline) {
  check();
  if (calls.empty()) return;
  require_nccl_success(table_.group_start(), "a group's start");
  Result worst = Result::success;
  for (const nccl::Call& call : calls) {
    const Result result = table_.call(call, comm_, stream);
    if (result != Result::success && result != Result::in_progress) worst = result;
  }
  const Result ended = table_.group_end();  // also after an error, because the group is a state of the thread
  require_nccl_success(worst, "a call");
  require_nccl_success(ended, "a group");
  settle("a group", deadline);
}

void NcclLink::check() { require_nccl_success(state(), "a collective"); }

bool NcclLink::has_lost_peer() {
  const Result found = state();
  if (found == Result::remote_error) return true;
  require_nccl_success(found, "a collective");
  return false;
}

Result NcclLink::state() {
  require<CollectiveError>(alive(), "the NCCL communicator cannot be used: ", failure_);
  Result found = Result::success;
  require_nccl_success(table_.async_error(comm_, found), "its state");
  return found;
}

std::unique_ptr<NcclLink> NcclLink::split(int color, int key, Deadline deadline) {
  check();
  require_nccl_success(table_.split(comm_, color, key, made_), "a split");
  settle("a split", deadline);
  auto part = std::unique_ptr<NcclLink>(new NcclLink(table_, std::exchange(made_, nullptr)));
  part->settle("a split", deadline);
  return part;
}

void* NcclLink::register_memory(void* data, std::size_t bytes) {
  void* handle = nullptr;
  if (alive() && table_.register_memory != nullptr)
    require_nccl_success(table_.register_memory(comm_, data, bytes, handle), "registering memory");
  return handle;
}

void NcclLink::deregister_memory(void* handle) noexcept {
  if (alive() && handle != nullptr) table_.deregister_memory(comm_, handle);
}

void NcclLink::end(Deadline deadline) noexcept {
  if (!alive()) return;
  Result state = table_.finalize(comm_);
  const auto waited = poll_in_vain(deadline, [&] {
    if (state == Result::in_progress) table_.async_error(comm_, state);
    return state != Result::in_progress;
  });
  if (waited || state != Result::success) return give_up();
  table_.destroy(std::exchange(comm_, nullptr));
}

void NcclLink::give_up() noexcept {
  if (!alive()) return;
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
  if (!aborting_.joinable()) return;
  if (aborted_.wait_until(deadline_after(Clock::now(), limit)) == std::future_status::ready)
    aborting_.join();
  else
    aborting_.detach();
}

void NcclLink::fail(const std::string& reason) {
  failure_ = reason;
  give_up();
  throw CollectiveError(reason);
}

void NcclLink::require_nccl_success(Result result, std::string_view what) {
  if (result == Result::success || result == Result::in_progress) return;
  const char* const more = table_.last_error(comm_);
  fail(message("NCCL: ", what, " failed: ", table_.error_string(result), more != nullptr && *more != '\0' ? "; " : "",
               more != nullptr ? more : ""));
}

/// Waits until the last call has completed: communicators are nonblocking, so calls may return before they complete.
void NcclLink::settle(std::string_view what, Deadline deadline) {
  const auto waited = poll_in_vain(deadline, [&] {
    Result state = Result::success;
    require_nccl_success(table_.async_error(comm_, state), what);
    require_nccl_success(state, what);
    return state != Result::in_progress;
  });
  if (waited) fail(missed_deadline(*waited, message("the other ranks in NCCL's ", what), {.deadline = deadline}));
}

}  // namespace fsdp::comm
