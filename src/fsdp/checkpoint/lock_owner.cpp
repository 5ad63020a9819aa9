// SPDX-License-Identifier: Apache-2.0
#include "lock_owner.hpp"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/identity.hpp>

#include "../core/json/strict_json.hpp"

namespace fsdp::checkpoint {
namespace {

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

}  // namespace

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

bool is_of_this_kernel(const LockOwner& owner) {
  const auto kernel = [](const std::string& processes) { return processes.substr(0, processes.find(' ')); };
  return owner.processes.empty() ? is_here(owner) : kernel(owner.processes) == kernel(process_table());
}

bool is_here(const LockOwner& owner) {
  return owner.processes.empty() ? owner.host == machine_name() : owner.processes == process_table();
}

bool lives_here(const LockOwner& owner) {
  if (owner.process <= 0 || (::kill(static_cast<pid_t>(owner.process), 0) != 0 && errno == ESRCH)) return false;
  const std::int64_t ticks = start_ticks(owner.process);
  return owner.ticks < 0 || ticks < 0 || ticks == owner.ticks;
}

}  // namespace fsdp::checkpoint
