// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/report/trace.hpp>

#include <set>

#include <range/v3/view/zip.hpp>

#include "../../fsdp/core/json/strict_json.hpp"
#include "files.hpp"

namespace fsdp::report {
TraceEvent memory_event(const device::BytesByKind& held, std::int64_t activations, std::int64_t rank, double seconds) {
  TraceEvent event{.name = "memory", .category = "memory", .begin_microseconds = seconds * 1e6, .rank = rank};
  for (const auto& [name, bytes] : ranges::views::zip(device::memory_kind_names, held))
    event.values.emplace_back(name, bytes);
  event.values.at(static_cast<std::size_t>(device::MemoryKind::activations)).second = activations;
  return event;
}

std::string trace_json(const std::vector<TraceEvent>& events, const std::vector<std::string>& lanes) {
  std::string text = "{\"traceEvents\":[\n";
  std::set<std::int64_t> ranks;
  std::set<std::pair<std::int64_t, std::int64_t>> used;
  for (const TraceEvent& event : events) {
    ranks.insert(event.rank);
    if (event.values.empty() && event.lane >= 0 && event.lane < std::ssize(lanes)) used.emplace(event.rank, event.lane);
  }
  const char* separator = "";
  const auto add = [&](std::initializer_list<JsonMember> members) {
    text += separator + object_text(members);
    separator = ",\n";
  };
  const auto named = [](const std::string& name) { return json_object({{"name", name}}); };
  for (const std::int64_t rank : ranks)
    add({{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", named("rank " + std::to_string(rank))}});
  for (const auto& [rank, lane] : used)
    add({{"name", "thread_name"},
         {"ph", "M"},
         {"pid", rank},
         {"tid", lane},
         {"args", named(lanes[static_cast<std::size_t>(lane)])}});
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
      auto values = json_object({});
      for (const auto& [name, value] : event.values) values[name] = value;
      add({{"name", event.name}, {"ph", "C"}, {"ts", event.begin_microseconds}, {"pid", event.rank}, {"args", values}});
    }
  }
  return text + "\n],\"displayTimeUnit\":\"ms\"}\n";
}

Trace::Trace(std::filesystem::path path, std::vector<std::string> lanes)
    : path_(std::move(path)), lanes_(std::move(lanes)) {
  if (on()) fifo_ = require_writable("--trace", path_);
}

void Trace::add(TraceEvent event) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

void Trace::write() const {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  write_output("--trace", path_, trace_json(events_, lanes_));
}

std::filesystem::path trace_path(const std::filesystem::path& path, std::int64_t rank) {
  if (rank == 0 || path.empty()) return path;
  std::filesystem::path named = path;
  return named.replace_filename(path.stem().string() + ".rank" + std::to_string(rank) + path.extension().string());
}

}  // namespace fsdp::report
