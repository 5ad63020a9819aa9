// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/monitor.hpp>

#include <algorithm>
#include <iomanip>
#include <random>
#include <sstream>
#include <thread>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::comm {

std::string_view name_of(Op op) {
  constexpr std::array<std::string_view, all_ops.size()> names = {
      "all_gather", "reduce_scatter", "all_reduce", "all_to_all", "reduce", "broadcast", "gather_bytes", "barrier"};
  return name_from(names, op);
}

CollectiveError::~CollectiveError() = default;

std::string describe(const Record& record) {
  std::string text(name_of(record.op));
  if (!record.label.what.empty()) text += message(" of ", record.label.what);
  if (record.label.unit >= 0) text += message(record.label.what.empty() ? " of unit " : ", unit ", record.label.unit);
  return text + message(" (", name_of(record.dtype), ", ", record.bytes / size_of(record.dtype), " elements, sequence ",
                        record.sequence, ")");
}

std::string in_seconds(std::chrono::duration<double> seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << seconds.count() << " s";
  return text.str();
}

std::string missed_deadline(std::chrono::duration<double> waited, std::string_view whom, const Options& options) {
  return message("waited ", in_seconds(waited), " for ", whom, "; the deadline is ", in_seconds(options.deadline));
}

std::string missed_device_deadline(std::chrono::duration<double> waited, const Options& options,
                                   std::string_view besides) {
  return message("waited ", in_seconds(waited), " for the device", besides, "; the limit of the device is ",
                 in_seconds(options.device_deadline));
}

Monitor::Monitor() = default;
Monitor::~Monitor() = default;

void Monitor::follow(const Monitor& parent, std::span<const int> ranks) {
  options = parent.options;
  for (const int peer : ranks) {
    world_ranks.push_back(parent.world_rank_of(peer));
    if (!parent.hosts.empty()) hosts.push_back(parent.hosts[static_cast<std::size_t>(peer)]);
  }
}

std::string Monitor::name_of(int peer, std::string_view state) const {
  std::string text = message("rank ", world_rank_of(peer));
  const std::string host = hosts.empty() ? "" : message("host ", hosts[static_cast<std::size_t>(peer)]);
  if (state.empty() && host.empty()) return text;
  return text + message(" (", state, state.empty() || host.empty() ? "" : "; ", host, ")");
}

int threads_in_host_program(const Options& options) {
  require<InputError>(options.threads >= 0, "communicator: ", options.threads, " threads; give 1 or more, or 0 for 1");
  return std::max(options.threads, 1);
}

std::function<void(int, const Record&)> random_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  return [seed, longest](int rank, const Record& record) {
    std::seed_seq key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(record.sequence)};
    std::array<std::uint32_t, 1> word{};
    key.generate(word.begin(), word.end());
    std::this_thread::sleep_for(longest * (word[0] >> 8) / (1 << 24));
  };
}

}  // namespace fsdp::comm
