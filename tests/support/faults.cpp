// SPDX-License-Identifier: Apache-2.0
/// @file
/// A library for LD_PRELOAD that injects faults into chosen system calls on files, and counts these calls.
///
/// TESSERA_FAULT=CALL:K:WHAT: the K-th CALL (from 1; * for every call) on a file whose path contains
/// TESSERA_FAULT_UNDER.
///   CALL: open, read (pread), write (pwrite), reserve (posix_fallocate), sync (fsync), close, rename, exchange
///   (renameat2), mkdir, lock (fcntl with F_OFD_SETLK)
///   WHAT: an errno (EIO, ENOSPC, EINTR, EINVAL, EACCES, EDQUOT, ENOLCK), short (half of the bytes), zero (none), kill
///   (SIGKILL instead of the call), slow (6 s before the call)
/// TESSERA_FAULT_ALSO=CALL:K:WHAT: a second fault.
/// TESSERA_FAULT_RANK=R: only in the process of MPI rank R.
/// TESSERA_FAULT_COUNT=FILE: appends a line "CALL N" for each kind of call when the process ends.
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

enum Call {
  open_call,
  read_call,
  write_call,
  reserve_call,
  sync_call,
  close_call,
  rename_call,
  exchange_call,
  mkdir_call,
  lock_call
};
constexpr std::array<std::string_view, 10> names = {"open",  "read",   "write",    "reserve", "sync",
                                                    "close", "rename", "exchange", "mkdir",   "lock"};

struct Error {
  std::string_view name;
  int number;
};
constexpr std::array<Error, 7> errors = {{{"EIO", EIO},
                                          {"ENOSPC", ENOSPC},
                                          {"EINTR", EINTR},
                                          {"EINVAL", EINVAL},
                                          {"EACCES", EACCES},
                                          {"EDQUOT", EDQUOT},
                                          {"ENOLCK", ENOLCK}}};

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

std::string_view setting(const char* name) {
  const char* const value = ::getenv(name);
  return value == nullptr ? std::string_view() : value;
}

/// One fault, parsed from "CALL:K:WHAT".
class Fault {
 public:
  explicit Fault(std::string_view text) {
    const std::size_t first = text.find(':'), second = text.find(':', first + 1);
    if (second == std::string_view::npos) return;
    call_ = text.substr(0, first);
    which_ = text.substr(first + 1, second - first - 1);
    what_ = text.substr(second + 1);
  }
  std::string_view of(Call call, long number) const {
    return call_ == names[call] && (which_ == "*" || which_ == std::to_string(number)) ? what_ : std::string_view();
  }

 private:
  std::string_view call_, which_, what_;
};

/// The faults requested in the environment, and the number of calls so far.
class Plan {
 public:
  ~Plan() {
    const std::string_view path = setting("TESSERA_FAULT_COUNT");
    if (path.empty() || !here_) return;
    std::FILE* const file = std::fopen(std::string(path).c_str(), "a");
    if (file == nullptr) return;
    for (std::size_t i = 0; i < names.size(); ++i)
      std::fprintf(file, "%s %ld\n", std::string(names[i]).c_str(), counts_[i].load());
    std::fclose(file);
  }

  /// The fault that is due in this call; empty if none is.
  std::string_view due(Call call, std::string_view path) {
    if (!here_ || under_.empty() || path.find(under_) == std::string_view::npos) return {};
    const long number = ++counts_[call];
    std::string_view what = fault_.of(call, number);
    if (what.empty()) what = also_.of(call, number);
    if (what == "kill") ::kill(::getpid(), SIGKILL);
    if (what == "slow") ::usleep(6'000'000);
    return what;
  }

 private:
  static bool is_here() {
    const std::string_view rank = setting("TESSERA_FAULT_RANK");
    return rank.empty() || rank == setting("OMPI_COMM_WORLD_RANK");
  }

  std::string_view under_ = setting("TESSERA_FAULT_UNDER");
  Fault fault_{setting("TESSERA_FAULT")}, also_{setting("TESSERA_FAULT_ALSO")};
  bool here_ = is_here();
  std::array<std::atomic<long>, names.size()> counts_{};
};

Plan& plan() {
  static Plan made;
  return made;
}

std::string path_of(int file) {
  std::array<char, 4096> text{};
  const ssize_t length = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : std::string();
}

/// The errno of a fault; 0 if it is of another kind.
int error_of(std::string_view what) {
  const auto* const found = std::find_if(errors.begin(), errors.end(), [&](const Error& e) { return e.name == what; });
  return found == errors.end() ? 0 : found->number;
}
int fault(Call call, std::string_view path) { return error_of(plan().due(call, path)); }

int failed(int number) {
  errno = number;
  return -1;
}

/// A read or write: fails, is shortened, or is done by `real(bytes)`.
template <class Real>
ssize_t transfer(Call call, int file, std::size_t bytes, Real real) {
  const std::string_view what = plan().due(call, path_of(file));
  if (const int number = error_of(what); number != 0) return failed(number);
  if (what == "zero") return 0;
  return real(what == "short" ? std::max<std::size_t>(bytes / 2, 1) : bytes);
}

template <class Real>
int opened(const char* path, Real real) {
  if (const int number = fault(open_call, path); number != 0) return failed(number);
  return real();
}

mode_t mode_of(int flags, va_list arguments) {
  return (flags & (O_CREAT | __O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

#define TESSERA_MODE(flags)                      \
  va_list arguments;                             \
  va_start(arguments, flags);                    \
  const mode_t mode = mode_of(flags, arguments); \
  va_end(arguments)

extern "C" {

int open(const char* path, int flags, ...) {
  TESSERA_MODE(flags);
  return opened(path, [&] { return next<int(const char*, int, ...)>("open")(path, flags, mode); });
}
int open64(const char* path, int flags, ...) {
  TESSERA_MODE(flags);
  return opened(path, [&] { return next<int(const char*, int, ...)>("open64")(path, flags, mode); });
}
int openat(int at, const char* path, int flags, ...) {
  TESSERA_MODE(flags);
  return opened(path, [&] { return next<int(int, const char*, int, ...)>("openat")(at, path, flags, mode); });
}
int openat64(int at, const char* path, int flags, ...) {
  TESSERA_MODE(flags);
  return opened(path, [&] { return next<int(int, const char*, int, ...)>("openat64")(at, path, flags, mode); });
}
ssize_t pread(int file, void* to, std::size_t bytes, off_t at) {
  return transfer(read_call, file, bytes, [&](std::size_t n) {
    return next<ssize_t(int, void*, std::size_t, off_t)>("pread")(file, to, n, at);
  });
}
ssize_t pread64(int file, void* to, std::size_t bytes, off64_t at) {
  return transfer(read_call, file, bytes, [&](std::size_t n) {
    return next<ssize_t(int, void*, std::size_t, off64_t)>("pread64")(file, to, n, at);
  });
}
ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t at) {
  return transfer(write_call, file, bytes, [&](std::size_t n) {
    return next<ssize_t(int, const void*, std::size_t, off_t)>("pwrite")(file, from, n, at);
  });
}
ssize_t pwrite64(int file, const void* from, std::size_t bytes, off64_t at) {
  return transfer(write_call, file, bytes, [&](std::size_t n) {
    return next<ssize_t(int, const void*, std::size_t, off64_t)>("pwrite64")(file, from, n, at);
  });
}
int posix_fallocate(int file, off_t at, off_t bytes) {
  const int number = fault(reserve_call, path_of(file));
  return number != 0 ? number : next<int(int, off_t, off_t)>("posix_fallocate")(file, at, bytes);
}
int fsync(int file) {
  if (const int number = fault(sync_call, path_of(file)); number != 0) return failed(number);
  return next<int(int)>("fsync")(file);
}
int close(int file) {
  const int number = fault(close_call, path_of(file));
  const int status = next<int(int)>("close")(file);
  return number != 0 ? failed(number) : status;
}
int rename(const char* from, const char* to) noexcept {
  if (const int number = fault(rename_call, to); number != 0) return failed(number);
  return next<int(const char*, const char*)>("rename")(from, to);
}
int renameat2(int from_at, const char* from, int to_at, const char* to, unsigned int flags) noexcept {
  if (const int number = fault(exchange_call, to); number != 0) return failed(number);
  return next<int(int, const char*, int, const char*, unsigned int)>("renameat2")(from_at, from, to_at, to, flags);
}
int fcntl(int file, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (command == F_OFD_SETLK)
    if (const int number = fault(lock_call, path_of(file)); number != 0) return failed(number);
  return next<int(int, int, ...)>("fcntl")(file, command, argument);
}
int mkdir(const char* path, mode_t mode) noexcept {
  if (const int number = fault(mkdir_call, path); number != 0) return failed(number);
  return next<int(const char*, mode_t)>("mkdir")(path, mode);
}
}
