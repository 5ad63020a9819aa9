// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/statistics.hpp>

#include <array>
#include <charconv>
#include <string>

#include <tessera/comm/agreement.hpp>

namespace fsdp::detail {
namespace {

/// Returns the shortest text that reads as this number.
std::string text_of(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::string text_of(const Statistic& statistic) {
  std::string text = message("statistic ", statistic.name, " = [");
  for (std::int64_t axis = 0; axis < statistic.shape.rank; ++axis)
    text += (axis > 0 ? ", " : "") + std::to_string(statistic.shape[axis]);
  static constexpr std::array merges{"own", "mean", "first"};
  return text + "], " + merges[static_cast<std::size_t>(statistic.merge)] + ", initial values of kind " +
         std::to_string(static_cast<int>(statistic.initial.kind)) + " " + text_of(statistic.initial.deviation);
}

}  // namespace

void require_same_settings(const comm::Ranks& ranks, const NamedNumbers& numbers,
                           const std::vector<Statistic>& statistics) {
  if (ranks.size() == 1) return;
  std::string mine;
  for (const auto& [name, number] : numbers) mine += name + " = " + text_of(number) + "\n";
  for (const Statistic& statistic : statistics) mine += text_of(statistic) + "\n";
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, mine, "settings"), "ranks have other settings",
                           "give all ranks the same ones");
}

}  // namespace fsdp::detail
