// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/step_record.hpp>

#include <array>
#include <cmath>
#include <tuple>

#include <tessera/fsdp/core/checked.hpp>

namespace fsdp::plan {

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, axis_count> names = {"world", "across", "shard", "sequence"};
  return name_from(names, axis);
}

Members StepRecord::members(Axis axis) const {
  for (const auto& [own, members] : axes)
    if (own == axis) return members;
  return {};
}

void StepRecord::scale_attention(double factor) {
  for (RecordedTask& each : tasks) {
    device::Counters& counters = each.work.counters;
    counters.attention_flops = std::llround(static_cast<double>(counters.attention_flops) * factor);
    counters.own_attention_flops = counters.attention_flops;
  }
}

std::vector<RecordedCollective> StepRecord::collectives() const {
  std::vector<RecordedCollective> list;
  for (const RecordedTask& each : tasks)
    list.insert(list.end(), each.work.collectives.begin(), each.work.collectives.end());
  list.insert(list.end(), optimizer.collectives.begin(), optimizer.collectives.end());
  return list;
}

void add_matmul(std::vector<CountedMatmul>& list, const device::MatmulRecord& matmul) {
  const auto shape = [](const device::MatmulRecord& of) {
    return std::tuple(of.m, of.n, of.k, of.operands, of.result, of.accumulate);
  };
  for (CountedMatmul& counted : list)
    if (shape(counted.matmul) == shape(matmul)) {
      ++counted.count;
      return;
    }
  list.push_back({.matmul = matmul, .count = 1});
}

}  // namespace fsdp::plan
