// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/optim/sharded.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <type_traits>

#include <tessera/comm/agreement.hpp>

namespace fsdp::detail {
namespace {

/// Returns the shortest text that reads as this number, so that numbers are compared to the bit.
std::string text_of(double number) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::string text_of(const NamedValue& value) {
  const auto text = [](const auto* each) {
    if constexpr (std::is_same_v<decltype(each), const double*>)
      return text_of(*each);
    else
      return message(*each);
  };
  return value.name + " = " + std::visit(text, value.value);
}

std::string text_of(const Statistic& statistic) {
  static constexpr std::array merges{"own", "mean", "first"};
  std::string text = message("statistic ", statistic.name, " = [");
  for (std::int64_t axis = 0; axis < statistic.shape.rank; ++axis)
    text += (axis > 0 ? ", " : "") + std::to_string(statistic.shape[axis]);
  return message(text, "], ", merges[static_cast<std::size_t>(statistic.merge)], ", initial values of kind ",
                 static_cast<int>(statistic.initial.kind), " ", text_of(statistic.initial.deviation));
}

}  // namespace

void require_same_settings(const comm::Ranks& ranks, std::string_view optimizer, const NamedValues& constants,
                           const device::StepRules& rules, const std::vector<Statistic>& statistics) {
  if (ranks.size() == 1) return;
  std::string mine = message("optimizer = ", optimizer, "\nclip = ", text_of(rules.clip),
                             "\nskips_overflow = ", rules.skips_overflow, "\n");
  for (const NamedValue& constant : constants.list()) mine += text_of(constant) + "\n";
  for (const Statistic& statistic : statistics) mine += text_of(statistic) + "\n";
  comm::require_same_texts(ranks.monitor(), comm::gather_texts(ranks, mine, "settings"), "ranks have other settings",
                           "give all ranks the same ones");
}

}  // namespace fsdp::detail
