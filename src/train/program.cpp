// SPDX-License-Identifier: Apache-2.0
#include <fsdp/train/program.hpp>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include <comm/launch.hpp>

namespace fsdp::train {
namespace {

void open_what_is_closed() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", O_RDWR));  // the lowest free number: this one
}

/// Raises the soft limit on open files, since every rank that is a thread opens every shard of a model. Usual soft
/// limits of 1024 are for programs that call select(2), which this one does not.
void allow_open_files() {
  constexpr rlim_t enough = 65536;  // some libraries close all descriptors up to the limit, one by one
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= enough) return;
  limit.rlim_cur = std::min(limit.rlim_max, enough);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // refused: the error of opening says what to do
}

/// Flushes stdout. Returns whether it took all output; if not, prints an error on stderr.
bool all_was_printed() {
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return true;
  std::fprintf(stderr, "tessera: stdout cannot be written%s%s; what was printed is not whole\n", errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  return false;
}

}  // namespace

int run_program(FunctionRef<int()> f) {
  open_what_is_closed();
  allow_open_files();
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit becomes an error of write
  int status = comm::ExitStatus::failed;
  try {
    status = f();
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "tessera: out of memory: this process was refused more; take smaller sizes or more ranks\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    status = comm::exit_status_of(error);
  }
  const bool printed = all_was_printed();
  return status == comm::ExitStatus::done && !printed ? comm::ExitStatus::failed : status;
}

}  // namespace fsdp::train
