// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/training/program.hpp>

#include <fcntl.h>
#include <omp.h>
#include <poll.h>
#include <stdio_ext.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include <tessera/comm/launch/cores.hpp>
#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/environment.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>

namespace fsdp::train {
namespace {

void open_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(descriptor, F_GETFD) < 0 && errno == EBADF)
      static_cast<void>(::open("/dev/null", O_RDWR));  // opens the lowest free descriptor, which is this one
}

/// Raises the soft limit on open files, since every rank that is a thread opens every shard of a model. The usual soft
/// limit of 1024 exists for programs that call select(2), which this one does not.
void allow_open_files() {
  constexpr rlim_t enough = 65536;  // some libraries close all descriptors up to the limit, one by one
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= enough) return;
  limit.rlim_cur = std::min(limit.rlim_max, enough);
  static_cast<void>(::setrlimit(RLIMIT_NOFILE, &limit));  // if this fails, opening reports the fix
}

/// Whether a descriptor is a pipe whose reader has closed it.
bool is_without_reader(int descriptor) {
  pollfd state{.fd = descriptor, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) == 1 && (state.revents & (POLLERR | POLLHUP)) != 0;
}

/// Flushes stdout. Returns 0, or after an error on stderr the status of a program that cannot write its output. Prints
/// nothing if the pipe's reader is gone, since that is intended, as in `tessera inspect FOLDER | head`.
int flushed_stdout() {
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  errno = 0;
  const bool flushed = std::fflush(stdout) == 0;
  const std::string why = errno != 0 ? message(": ", std::strerror(errno)) : "";
  std::signal(SIGPIPE, before);
  if (flushed && std::ferror(stdout) == 0) return comm::ExitStatus::done;
  ::__fpurge(stdout);  // otherwise exit() would write again
  if (is_without_reader(STDOUT_FILENO)) return 128 + SIGPIPE;
  print_sentence(message("stdout cannot be written", why, "; what was printed is not whole"));
  return comm::ExitStatus::failed;
}

/// Sets a flag to true for the lifetime of the object.
struct Set {
  explicit Set(bool& flag) : flag(flag) { flag = true; }
  Set(const Set&) = delete;
  Set& operator=(const Set&) = delete;
  ~Set() { flag = false; }
  bool& flag;
};

}  // namespace

void take_environment() {
  const bool is_limited = !environment("DNNL_MAX_CPU_ISA").empty();
  device::MatmulChoice choice{.limits_library = !is_limited};
  const std::string_view way = environment("TESSERA_BF16_MATMUL");
  if (!way.empty()) {
    require<InputError>(way == "native" || way == "float", "TESSERA_BF16_MATMUL is '", shortened(way),
                        "'; native and float exist");
    choice.bf16 = way == "native" ? device::Bf16Matmul::native : device::Bf16Matmul::by_float;
  }
  if (is_limited || !way.empty()) device::choose_matmul(choice);
  if (const std::string_view isa = environment("TESSERA_ISA"); !isa.empty())
    device::choose_instruction_set(isa, "TESSERA_ISA");
}

std::filesystem::path temporary_directory() {
  const std::string_view named = environment("TMPDIR");
  return named.empty() ? std::filesystem::path("/tmp") : std::filesystem::path(named);
}

void use_threads(int threads) { omp_set_num_threads(threads); }

void warn_of_cores(int ranks, std::int64_t threads) {
  if (const std::string text = comm::cores_warning(ranks, threads); !text.empty()) print_warning(text);
}

int run_program(FunctionRef<int()> f) {
  static bool runs = false;
  if (runs) return f();
  const Set inside(runs);
  open_standard_streams();
  allow_open_files();
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit becomes an error of write
  int status = comm::ExitStatus::failed;
  try {
    take_environment();
    status = f();
  } catch (const std::bad_alloc&) {
    print_sentence("out of memory: this process was refused more; take smaller sizes or more ranks");
  } catch (const std::exception& error) {
    print_sentence(error.what());
    status = comm::exit_status_of(error);
  } catch (...) {
    print_sentence("ended by an exception that is no std::exception; throw fsdp::Error, which says what happened");
  }
  const int printed = flushed_stdout();
  return status == comm::ExitStatus::done ? printed : status;
}

}  // namespace fsdp::train
