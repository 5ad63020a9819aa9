// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/trace.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/function_ref.hpp>

#include "../../fsdp/checkpoint/posix.hpp"

namespace fsdp::report {
namespace {

/// Whether a file is written at a path, and not into a pipe or a device.
bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return !std::filesystem::exists(path, error) || std::filesystem::is_regular_file(path, error);
}

/// Calls use(part) with the trace's file under a temporary name beside it. Throws InputError.
void with_part(const std::filesystem::path& path, FunctionRef<void(checkpoint::PartFile&)> use) {
  std::error_code error;
  std::filesystem::path named = std::filesystem::weakly_canonical(std::filesystem::absolute(path, error), error);
  std::filesystem::path part = named;
  part += ".part";
  try {
    checkpoint::PartFile file(std::move(part), std::move(named));
    use(file);
  } catch (const InputError& failure) {
    throw InputError(message("--trace ", failure.what()));
  }
}

}  // namespace

TraceEvent memory_event(const device::BytesByKind& held, std::int64_t activations, std::int64_t rank, double seconds) {
  TraceEvent event{.name = "memory", .category = "memory", .begin_microseconds = seconds * 1e6, .rank = rank};
  for (std::size_t kind = 0; kind < held.size(); ++kind)
    event.values.emplace_back(
        device::memory_kind_names[kind],
        kind == static_cast<std::size_t>(device::MemoryKind::activations) ? activations : held[kind]);
  return event;
}

std::string trace_json(const std::vector<TraceEvent>& events, const std::vector<std::string>& lanes) {
  using Object = nlohmann::ordered_json;
  std::string text = "{\"traceEvents\":[\n";
  std::set<std::int64_t> ranks;
  std::set<std::pair<std::int64_t, std::int64_t>> used;
  for (const TraceEvent& event : events) {
    ranks.insert(event.rank);
    if (event.values.empty() && event.lane >= 0 && event.lane < std::ssize(lanes)) used.emplace(event.rank, event.lane);
  }
  const char* separator = "";
  const auto add = [&](const Object& object) {
    text += separator + object.dump(-1, ' ', false, Object::error_handler_t::replace);
    separator = ",\n";
  };
  for (const std::int64_t rank : ranks)
    add({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", "rank " + std::to_string(rank)}}}});
  for (const auto& [rank, lane] : used)
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", rank},
         {"tid", lane},
         {"args", {{"name", lanes[static_cast<std::size_t>(lane)]}}}});
  for (const TraceEvent& event : events) {
    if (event.values.empty()) {
      add({{"name", event.name},
           {"cat", event.category},
           {"ph", "X"},
           {"ts", event.begin_microseconds},
           {"dur", event.duration_microseconds},
           {"pid", event.rank},
           {"tid", event.lane}});
    } else {
      auto values = Object::object();
      for (const auto& [name, value] : event.values) values[name] = value;
      add({{"name", event.name}, {"ph", "C"}, {"ts", event.begin_microseconds}, {"pid", event.rank}, {"args", values}});
    }
  }
  return text + "\n],\"displayTimeUnit\":\"ms\"}\n";
}

Trace::Trace(std::filesystem::path path, std::vector<std::string> lanes)
    : path_(std::move(path)), lanes_(std::move(lanes)) {
  if (!on()) return;
  std::error_code error;
  const bool existed = std::filesystem::exists(path_, error);
  errno = 0;
  const std::ofstream file(path_, std::ios::app);
  require<InputError>(file.is_open(), "--trace ", path_.string(), ": cannot be written: ", std::strerror(errno));
  if (!existed) std::filesystem::remove(path_, error);  // it is written at the end; a failed run leaves no file
  if (is_file(path_)) with_part(path_, [](checkpoint::PartFile&) {});
}

Trace::~Trace() = default;

void Trace::add(TraceEvent event) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void Trace::write() const {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  const std::string text = trace_json(events_, lanes_);
  if (is_file(path_))
    return with_part(path_, [&](checkpoint::PartFile& part) {
      part.write(text.data(), text.size(), 0);
      part.finish();
    });
  std::ofstream file(path_);
  file << text << std::flush;
  require<InputError>(file.good(), "--trace ", path_.string(), ": cannot be written (is the disk full?)");
}

std::filesystem::path trace_path(const std::filesystem::path& path, std::int64_t rank) {
  if (rank == 0 || path.empty()) return path;
  std::filesystem::path named = path;
  return named.replace_filename(path.stem().string() + ".rank" + std::to_string(rank) + path.extension().string());
}

}  // namespace fsdp::report
