// SPDX-License-Identifier: Apache-2.0
#include "watchdog.hpp"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/monitor.hpp>
#include <tessera/comm/poll.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::comm {

Watchdog::Watchdog(std::string whom, std::chrono::milliseconds limit) {
  sigset_t all, before;  // blocks all signals in the new thread, so that existing threads handle them
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this, limit, whom = std::move(whom)] {
    std::unique_lock lock(mutex_);
    if (over_.wait_until(lock, deadline_after(std::chrono::steady_clock::now(), limit), [&] { return done_; })) return;
    print_text(stderr, message(whom, " waited ", in_seconds(limit), " for the other ranks; the deadline is ",
                               in_seconds(limit), "\n"));
    ::_exit(ExitStatus::lost);
  });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  over_.notify_all();
  thread_.join();
}

}  // namespace fsdp::comm
