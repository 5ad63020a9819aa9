// SPDX-License-Identifier: Apache-2.0
#include "nccl_abort.hpp"

#include <exception>
#include <utility>

#include <tessera/comm/poll.hpp>

namespace fsdp::comm {

void NcclAbort::start(const nccl::Table& table, nccl::Comm comm) noexcept {
  const auto abort_comm = table.abort;
  try {
    std::packaged_task<void()> task([abort_comm, comm] { abort_comm(comm); });
    done_ = task.get_future();
    thread_ = std::thread(std::move(task));
  } catch (const std::exception&) {  // no thread is available: abort here, since the kernels must end
    abort_comm(comm);
  }
}

void NcclAbort::finish(std::chrono::milliseconds limit) noexcept {
  if (!thread_.joinable()) return;
  if (done_.wait_until(deadline_after(std::chrono::steady_clock::now(), limit)) == std::future_status::ready)
    thread_.join();
  else
    thread_.detach();
}

}  // namespace fsdp::comm
