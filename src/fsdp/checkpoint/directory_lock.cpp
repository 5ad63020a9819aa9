// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/directory_lock.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <stop_token>
#include <system_error>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../core/json/strict_json.hpp"
#include "posix.hpp"

namespace fsdp::checkpoint {
namespace {

/// A process that locked a directory, as recorded in the lock file.
struct LockOwner {
  std::string host;  ///< empty if the lock is just being created, or its file is not valid
  std::int64_t process = 0;
  std::string since;  ///< UTC start time, for messages
  /// Start time of the process in clock ticks; distinguishes later processes with the same id; -1 if unknown.
  std::int64_t ticks = -1;
  std::string processes;     ///< identifies the kernel and the namespace in which `process` is valid; empty if unknown
  std::uint64_t number = 0;  ///< random number that makes each lock unique
};

/// Returns the start time of a process, field 22 of /proc/PID/stat; -1 if there is no such process.
std::int64_t start_ticks(std::int64_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = text.rfind(')');  // the process's name may contain spaces and parentheses
  if (name_end == std::string::npos) return -1;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  std::int64_t ticks = -1;
  for (int i = 3; i < 22; ++i) fields >> field;
  return fields >> ticks ? ticks : -1;
}

/// Identifies the table of process ids that this process belongs to: hosts may have the same name, and containers of
/// one host may number their processes separately. Empty if the system does not provide it.
std::string process_table() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::error_code error;
  const std::filesystem::path space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return std::getline(file, boot) && !error ? boot + " " + space.string() : std::string();
}

/// Returns this process as an owner, with a new random number.
LockOwner this_process() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  std::random_device random;
  return {.host = machine_name(),
          .process = ::getpid(),
          .since = text.data(),
          .ticks = start_ticks(::getpid()),
          .processes = process_table(),
          .number = std::uint64_t{random()} << 32 | random()};
}

std::string to_json(const LockOwner& owner) {
  return nlohmann::ordered_json{{"host", owner.host},         {"process", owner.process},     {"since", owner.since},
                                {"start_ticks", owner.ticks}, {"processes", owner.processes}, {"number", owner.number}}
             .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

/// Parses the contents of a lock file.
LockOwner owner_of(const std::string& text, const std::filesystem::path& path) {
  try {
    const nlohmann::json object = parse_strict(text, path.string());
    if (!object.is_object() || !object.contains("host") || !object.contains("process")) return {};
    return {.host = shortened(object.at("host").get<std::string>()),
            .process = object.at("process").get<std::int64_t>(),
            .since = shortened(object.value("since", "?")),
            .ticks = object.value("start_ticks", std::int64_t{-1}),
            .processes = object.value("processes", "")};
  } catch (const InputError&) {
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string text_of(const LockOwner& owner) {
  if (owner.host.empty()) return "an unknown run";
  return message("process ", owner.process, " on ", owner.host, ", which began at ", owner.since);
}

/// Whether the owner's process id is valid on this machine.
bool is_here(const LockOwner& owner) {
  return owner.processes.empty() ? owner.host == machine_name() : owner.processes == process_table();
}

/// Whether the owner runs, or ran, under this system's kernel, whose file locks are then conclusive.
bool is_of_this_kernel(const LockOwner& owner) {
  const auto kernel = [](const std::string& processes) { return processes.substr(0, processes.find(' ')); };
  return owner.processes.empty() ? is_here(owner) : kernel(owner.processes) == kernel(process_table());
}

/// Whether an owner on this machine (is_here) still runs.
bool is_on_this_machine(const LockOwner& owner) {
  if (owner.process <= 0 || (::kill(static_cast<pid_t>(owner.process), 0) != 0 && errno == ESRCH)) return false;
  const std::int64_t ticks = start_ticks(owner.process);
  return owner.ticks < 0 || ticks < 0 || ticks == owner.ticks;
}

enum class Kernel { locked, held_by_another, cannot_lock };

Kernel lock_whole(const FileDescriptor& file) {
  struct flock whole {};
  whole.l_type = F_WRLCK;
  whole.l_whence = SEEK_SET;
  int status = 0;
  do status = ::fcntl(file.get(), F_OFD_SETLK, &whole);
  while (status != 0 && errno == EINTR);
  if (status == 0) return Kernel::locked;
  return errno == EAGAIN || errno == EACCES ? Kernel::held_by_another : Kernel::cannot_lock;
}

/// Returns whether `path` still refers to the open file.
bool is_at(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat open_one {
  }, named{};
  return ::fstat(file.get(), &open_one) == 0 && ::stat(path.c_str(), &named) == 0 && open_one.st_ino == named.st_ino &&
         open_one.st_dev == named.st_dev;
}

/// The observable state of a lock: it changes with each renewal, and with each owner.
struct Mark {
  std::string text = {};
  std::filesystem::file_time_type modified = {};  ///< on the file system's clock

  friend bool operator==(const Mark&, const Mark&) = default;
};

/// Opens the file on every call: a file system that several hosts share may cache the attributes of an open file.
Mark mark_of(const std::filesystem::path& path) {
  try {
    std::error_code gone;
    return {.text = read_small_file(path, 4096), .modified = std::filesystem::last_write_time(path, gone)};
  } catch (const InputError&) {
    return {};
  }
}

/// The state of an existing lock, as far as it is known.
enum class LockState { nobodys, ended, held, unknown };

LockState lock_state_of(const LockOwner& owner, Kernel kernel) {
  if (kernel == Kernel::held_by_another) return LockState::held;
  if (owner.host.empty()) return LockState::nobodys;
  if (kernel == Kernel::locked && is_of_this_kernel(owner)) return LockState::ended;
  if (!is_here(owner)) return LockState::unknown;
  return is_on_this_machine(owner) ? LockState::held : LockState::ended;
}

}  // namespace

class DirectoryLock::Held {
 public:
  Held(const std::filesystem::path& dir, const Warn& warn, const LockTimes& times)
      : dir_(dir), path_(dir / lock_name), times_(times), made_(make_folders(dir)), text_(to_json(this_process())) {
    try {
      take(warn);
    } catch (...) {
      remove_made(made_);
      throw;
    }
    renewing_ = std::jthread([this](const std::stop_token& stop) { renew(stop); });
  }
  Held(Held&&) = delete;
  ~Held() {
    renewing_.request_stop();
    renewing_.join();
    std::error_code ignored;
    if (is_at(file_, path_) && !taken_over()) std::filesystem::remove(path_, ignored);
    remove_made(made_);
  }

  const std::string& text() const { return text_; }
  void require_held() const {
    if (const std::optional<LockOwner> other = taken_over())
      throw InputError(
          message(dir_.string(), ": ", text_of(*other), " has taken over its lock, which this run had not ",
                  "renewed for a while (was it stopped?); resume this run from its newest checkpoint in a ",
                  "folder of its own"));
  }

 private:
  void take(const Warn& warn) {
    for (int attempt = 0;; ++attempt) {
      file_ = open_file(path_, O_RDWR | O_CREAT | O_NOFOLLOW, "opened to lock the folder");
      const Kernel kernel = lock_whole(file_);
      const Mark found = mark_of(path_);
      const LockOwner owner = owner_of(found.text, path_);
      LockState standing = lock_state_of(owner, kernel);
      if (standing == LockState::unknown) {
        const Mark later = watch(found, owner, warn);
        if (later.text != found.text && attempt < 100) continue;  // the file now has another owner, or no owner
        standing = later == found ? LockState::ended : LockState::held;
      }
      if (standing == LockState::held) refuse(owner);
      if (!is_at(file_, path_) && attempt < 100) continue;  // its owner has removed the file in the meantime
      if (warn && standing == LockState::ended)
        warn(message(path_.string(), " was left by ", text_of(owner), "; that run has ended, its lock is taken over"));
      if (::ftruncate(file_.get(), 0) != 0) throw_errno(path_, "written");
      write_all(file_, path_, text_.data(), text_.size(), 0);
      if (kernel == Kernel::cannot_lock) require_no_other_owner();
      return;
    }
  }

  /// Returns the owner that overwrote this process's lock file; nothing if no process did.
  std::optional<LockOwner> taken_over() const {
    const std::string now = mark_of(path_).text;
    const LockOwner owner = owner_of(now, path_);
    return now == text_ || owner.host.empty() ? std::nullopt : std::optional(owner);
  }

  [[noreturn]] void refuse(const LockOwner& owner) const {
    throw InputError(message(
        dir_.string(), ": another run writes there: ", text_of(owner),
        "; two would destroy each other's files. Give each its own folder, or wait until that one ", "has ended"));
  }

  /// Returns the first mark that differs from `found`, or `found` if the file does not change for `watched_for`.
  Mark watch(const Mark& found, const LockOwner& owner, const Warn& warn) const {
    const double seconds = std::chrono::duration<double>(times_.watched_for).count();
    if (warn)
      warn(message(path_.string(), " is of ", text_of(owner), ": waits up to ", seconds,
                   " s to see whether that run still renews it"));
    const auto end = std::chrono::steady_clock::now() + times_.watched_for;
    while (std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(times_.renewed_every / 10);
      if (Mark now = mark_of(path_); now != found) return now;
    }
    return found;
  }

  /// If the file system has no locks, two processes may have taken the file at the same time: the last one that wrote
  /// to it owns the lock.
  void require_no_other_owner() const {
    std::this_thread::sleep_for(times_.renewed_every / 10);
    const Mark now = mark_of(path_);
    if (now.text != text_) refuse(owner_of(now.text, path_));
  }

  void renew(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock guard(mutex);
    while (!ended.wait_for(guard, stop, times_.renewed_every, [] { return false; }) && !stop.stop_requested())
      ::futimens(file_.get(), nullptr);
  }

  std::filesystem::path dir_, path_;
  LockTimes times_;
  std::vector<std::filesystem::path> made_;  // folders that were created, innermost first
  std::string text_;
  FileDescriptor file_;
  std::jthread renewing_;
};

DirectoryLock::DirectoryLock(const std::filesystem::path& dir, const Warn& warn, const LockTimes& times)
    : held_(std::make_unique<Held>(dir, warn, times)) {}
DirectoryLock::DirectoryLock(DirectoryLock&&) noexcept = default;
DirectoryLock& DirectoryLock::operator=(DirectoryLock&&) noexcept = default;
DirectoryLock::~DirectoryLock() = default;

const std::string& DirectoryLock::text() const { return held_->text(); }
void DirectoryLock::require_held() const { held_->require_held(); }

void require_lock_seen(const std::filesystem::path& dir, std::string_view text, std::chrono::milliseconds patience) {
  const std::filesystem::path path = dir / lock_name;
  const auto end = std::chrono::steady_clock::now() + patience;
  std::string why;
  do {
    std::error_code ignored;
    (void)std::filesystem::directory_iterator(dir, ignored);  // rereads the directory
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
    const int error = file.get() < 0 ? errno : 0;
    why = error != 0 ? std::strerror(error) : "is of another run";
    if (file.get() >= 0 && mark_of(path).text == text) return;
    if (error != 0 && error != ENOENT && error != ESTALE && error != EINTR)
      break;  // for example a folder that is read-only here
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  } while (std::chrono::steady_clock::now() < end);
  throw InputError(message(dir.string(), ": is not the folder that rank 0 writes, or cannot be written from here: ",
                           path.filename().string(), ": ", why, "; give a folder that all hosts share"));
}

}  // namespace fsdp::checkpoint
