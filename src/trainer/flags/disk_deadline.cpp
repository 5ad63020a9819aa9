// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/flags/disk_deadline.hpp>

#include <chrono>
#include <cstdint>

namespace fsdp::train {

void detail::call_with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what,
                                     FunctionRef<void()> work) {
  struct Restored {
    comm::Options& options;
    std::chrono::milliseconds before = options.deadline;
    ~Restored() { options.deadline = before; }
  };
  const Restored restored{ranks.monitor().options};
  restored.options.deadline = std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
  const auto begin = std::chrono::steady_clock::now();
  try {
    work();
  } catch (const comm::CollectiveError& error) {
    if (std::chrono::steady_clock::now() - begin < restored.options.deadline) throw;
    throw comm::CollectiveError(
        message(what, " took longer than ", seconds, " s: is its disk slow, or gone? ", error.what()));
  }
}

void detail::together_with_disk_deadline(const comm::Ranks& ranks, double seconds, const std::string& what,
                                         std::string_view label, FunctionRef<void()> f) {
  call_with_disk_deadline(ranks, seconds, what, [&] { comm::together(ranks, label, f); });
}

}  // namespace fsdp::train
