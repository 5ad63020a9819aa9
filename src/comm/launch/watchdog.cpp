// SPDX-License-Identifier: Apache-2.0
#include "process_end.hpp"

#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <stop_token>
#include <utility>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

Watchdog::Watchdog(std::string whom, std::chrono::milliseconds limit, std::string_view of) {
  sigset_t all, before;  // blocks all signals in the new thread, so that existing threads handle them
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::jthread([limit, of, whom = std::move(whom)](const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any over;
    const auto is_over = [&] { return stop.stop_requested(); };
    // libstdc++ may return false for a stop that is requested just before it begins to wait.
    if (over.wait_until(lock, stop, deadline_after(Clock::now(), limit), is_over) || is_over()) return;
    print_sentence(message(whom, " waited ", in_seconds(limit), " for the other ranks; the deadline", of, " is ",
                           in_seconds(limit)));
    ::_exit(ExitStatus::lost);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace fsdp::comm
