// SPDX-License-Identifier: Apache-2.0
#include <comm/monitor.hpp>

#include <array>
#include <iomanip>
#include <random>
#include <sstream>
#include <thread>

namespace fsdp::comm {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::all_gather: return "all_gather";
    case Op::reduce_scatter: return "reduce_scatter";
    case Op::all_reduce: return "all_reduce";
    case Op::reduce: return "reduce";
    case Op::broadcast: return "broadcast";
    case Op::gather_bytes: return "gather_bytes";
    case Op::barrier: return "barrier";
  }
  return "?";
}

std::string describe(const Event& event) {
  std::string text(name_of(event.op));
  if (!event.label.what.empty()) text += message(" of ", event.label.what);
  if (event.label.unit >= 0) text += message(event.label.what.empty() ? " of unit " : ", unit ", event.label.unit);
  return text + message(" (", name_of(event.dtype), ", ", event.bytes / size_of(event.dtype), " elements, sequence ",
                        event.sequence, ")");
}

std::string in_seconds(std::chrono::duration<double> seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(3) << seconds.count() << " s";
  return text.str();
}

std::string missed_deadline(std::chrono::duration<double> waited, std::string_view whom, const Options& options) {
  return message("waited ", in_seconds(waited), " for ", whom, "; the deadline is ", in_seconds(options.deadline));
}

std::function<void(int, const Event&)> random_delays(std::uint64_t seed, std::chrono::microseconds longest) {
  return [seed, longest](int rank, const Event& event) {
    std::seed_seq key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                      static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(event.sequence)};
    std::array<std::uint32_t, 1> word{};
    key.generate(word.begin(), word.end());
    std::this_thread::sleep_for(longest * (word[0] >> 8) / (1 << 24));
  };
}

}  // namespace fsdp::comm
