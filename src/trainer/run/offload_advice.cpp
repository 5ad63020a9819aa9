// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/offload_advice.hpp>

#include <tessera/trainer/flags/offload_flag.hpp>

namespace fsdp::train {
namespace {

constexpr int all = 100;

/// Returns the least number from 1 to `all` for which a condition holds; `all` + 1 if it holds for none.
int least_percents(FunctionRef<bool(int percents)> holds) {
  int least = 1, beyond = all + 1;  // it is in [least, beyond]
  while (least < beyond) {
    const int middle = (least + beyond) / 2;
    if (holds(middle))
      beyond = middle;
    else
      least = middle + 1;
  }
  return least;
}

}  // namespace

std::optional<double> least_share(FunctionRef<bool(double share)> fits) {
  const int percents = least_percents([&](int number) { return fits(number / double{all}); });
  return percents > all ? std::nullopt : std::optional(percents / double{all});
}

double largest_share(FunctionRef<bool(double share)> fits) {
  const int kept = least_percents([&](int number) { return number == all || fits((all - number) / double{all}); });
  return (all - kept) / double{all};
}

std::string flags_of(const UnitOptions& other, const UnitOptions& now, bool optimizer) {
  std::string text = other.recompute && !now.recompute ? "--recompute" : "";
  if (other.offload_inputs > now.offload_inputs)
    text += (text.empty() ? "--offload " : " --offload ") +
            to_text(OffloadFlag{.optimizer = optimizer, .inputs = other.offload_inputs});
  return text;
}

}  // namespace fsdp::train
