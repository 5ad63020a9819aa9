// SPDX-License-Identifier: Apache-2.0
#include <fsdp/checkpoint/directory_lock.hpp>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <mutex>
#include <sstream>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <fsdp/core/error.hpp>
#include <fsdp/core/identity.hpp>

#include "../models/strict_json.hpp"
#include "posix.hpp"

namespace fsdp::checkpoint {
namespace {

/// The owner of a lock, as written in the lock file.
struct Owner {
  std::string host;
  std::int64_t process = 0;
  std::string since;        ///< UTC, for messages
  std::int64_t ticks = -1;  ///< start of the process in clock ticks; differs for a later process with the same id
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

Owner this_process() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {.host = machine_name(), .process = ::getpid(), .since = text.data(), .ticks = start_ticks(::getpid())};
}

std::string to_json(const Owner& owner) {
  return nlohmann::ordered_json{
             {"host", owner.host}, {"process", owner.process}, {"since", owner.since}, {"start_ticks", owner.ticks}}
             .dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

/// Reads the owner. Returns an empty one if the file is empty (the lock is just being created) or not valid.
Owner owner_in(const std::filesystem::path& path) {
  try {
    const nlohmann::json object = parse_strict(read_small_file(path, 4096), path.string());
    if (!object.is_object() || !object.contains("host") || !object.contains("process")) return {};
    return {.host = shortened(object.at("host").get<std::string>()),
            .process = object.at("process").get<std::int64_t>(),
            .since = shortened(object.value("since", "?")),
            .ticks = object.value("start_ticks", std::int64_t{-1})};
  } catch (const InputError&) {
    return {};
  } catch (const nlohmann::json::exception&) {
    return {};
  }
}

std::string text_of(const Owner& owner, std::int64_t age) {
  if (owner.host.empty()) return "an unknown run";
  return message("process ", owner.process, " on ", owner.host, ", which began at ", owner.since, " (renewed ", age,
                 " s ago)");
}

bool lives_here(const Owner& owner) {
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

/// Returns whether `path` still names the open file.
bool is_at(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat open_one {
  }, named{};
  return ::fstat(file.get(), &open_one) == 0 && ::stat(path.c_str(), &named) == 0 && open_one.st_ino == named.st_ino &&
         open_one.st_dev == named.st_dev;
}

std::int64_t age_of(const FileDescriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return 0;
  return std::max<std::int64_t>(std::time(nullptr) - status.st_mtime, 0);
}

}  // namespace

class DirectoryLock::Held {
 public:
  Held(const std::filesystem::path& dir, const Warn& warn) : path_(dir / "run.lock") {
    make(dir);
    try {
      take(dir, warn);
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
    if (is_at(file_, path_)) std::filesystem::remove(path_, ignored);
    remove_made(made_);
  }

 private:
  void make(const std::filesystem::path& dir) {
    try {
      made_ = make_folders(dir);
    } catch (const InputError& error) {
      throw InputError(message("--checkpoint-dir ", error.what()));
    }
  }

  void take(const std::filesystem::path& dir, const Warn& warn) {
    for (int attempt = 0;; ++attempt) {
      file_ = open_file(path_, O_RDWR | O_CREAT | O_NOFOLLOW, "opened to lock the folder");
      const Kernel kernel = lock_whole(file_);
      const Owner owner = owner_in(path_);
      const std::int64_t age = age_of(file_);
      const bool here = owner.host == machine_name();
      const bool held = kernel == Kernel::held_by_another ||
                        (kernel == Kernel::cannot_lock && here && lives_here(owner)) ||
                        (!owner.host.empty() && !here && age < stale_after.count());
      require<InputError>(!held, "--checkpoint-dir ", dir.string(), ": another run writes there: ", text_of(owner, age),
                          "; two would destroy each other's checkpoints. Give each its own folder, or wait until that "
                          "one has ended",
                          kernel == Kernel::locked && !here
                              ? message(" (if it was killed: ", stale_after.count(),
                                        " s after its last renewal, or remove ", path_.string(), ")")
                              : "");
      if (!is_at(file_, path_) && attempt < 100) continue;  // meanwhile its owner removed the file
      if (warn && !owner.host.empty())
        warn(message(path_.string(), " was left by ", text_of(owner, age),
                     "; that run has ended, its lock is taken over"));
      break;
    }
    const std::string text = to_json(this_process());
    if (::ftruncate(file_.get(), 0) != 0) throw_errno(path_, "written");
    write_all(file_, path_, text.data(), text.size(), 0);
  }

  void renew(const std::stop_token& stop) {
    std::mutex mutex;
    std::condition_variable_any ended;
    std::unique_lock guard(mutex);
    while (!ended.wait_for(guard, stop, renewed_every, [] { return false; }) && !stop.stop_requested())
      ::futimens(file_.get(), nullptr);
  }

  std::filesystem::path path_;
  std::vector<std::filesystem::path> made_;  // innermost first
  FileDescriptor file_;
  std::jthread renewing_;
};

DirectoryLock::DirectoryLock(const std::filesystem::path& dir, const Warn& warn)
    : held_(std::make_unique<Held>(dir, warn)) {}
DirectoryLock::DirectoryLock(DirectoryLock&&) noexcept = default;
DirectoryLock& DirectoryLock::operator=(DirectoryLock&&) noexcept = default;
DirectoryLock::~DirectoryLock() = default;

}  // namespace fsdp::checkpoint
