// SPDX-License-Identifier: Apache-2.0
#include <support/rank_results.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include <gtest/gtest.h>

namespace fsdp::test {

RankResults::RankResults(int ranks) : by_rank_(static_cast<std::size_t>(ranks)) {
  for (RunResults& results : by_rank_) results.memory.resize(1);
}
RankResults::~RankResults() = default;

RunResults& RankResults::of(int rank) { return by_rank_[static_cast<std::size_t>(rank)]; }

RunResults RankResults::merged() {
  RunResults results = std::move(by_rank_.front());
  for (std::size_t rank = 1; rank < by_rank_.size(); ++rank) {
    EXPECT_EQ(by_rank_[rank].losses, results.losses);
    EXPECT_EQ(by_rank_[rank].norms, results.norms);
    EXPECT_EQ(by_rank_[rank].logits, results.logits);
    results.memory.push_back(by_rank_[rank].memory.front());
  }
  return results;
}

void add_traffic(RunResults& results, const comm::MeshTraffic& now, const comm::MeshTraffic& before) {
  results.traffic.push_back(now - before);
}

void add_digests(RunResults& results, std::vector<StepDigest> digests) {
  results.digests.push_back(std::move(digests));
}

void copy_records(std::vector<comm::Record>& records, const comm::Monitor& monitor) { records = monitor.records; }

void copy_generating_records(std::vector<comm::Record>& records, const comm::Monitor& monitor) {
  copy_records(records, monitor);
  std::erase_if(records, [](const comm::Record& record) { return record.label.what == "schedules"; });
}

void add_state(Values& states, const std::string& parameter, std::string_view state, const Values& found) {
  states[parameter + "." + std::string(state)] = found.at(parameter);
}

float* add_list(std::vector<std::vector<float>>& lists, std::size_t numbers) {
  return lists.emplace_back(numbers).data();
}

HeldTensors::HeldTensors(const std::vector<Parameter>& parameters, const ModuleState& module,
                         FunctionRef<bool(const Parameter&, bool)> has)
    : parameters_(parameters) {
  for (const Parameter& parameter : parameters) {
    offsets_[parameter.name] = total_;
    total_ += static_cast<std::size_t>(parameter.shape.numel());
  }
  for (const GroupTensors* const group : module.group_list())
    for (const Parameter& parameter : group->parameters())
      if (!has(parameter, group->facts().trainable)) left_out_.push_back(parameter.name);
}
HeldTensors::~HeldTensors() = default;

void HeldTensors::add(const std::string& name, std::int64_t begin, bool owned, const void* bits, std::int64_t count) {
  Part& part = parts_.emplace_back();
  part.at = offsets_.at(name) + static_cast<std::size_t>(begin);
  part.owned = owned;
  part.bits.resize(static_cast<std::size_t>(count));
  std::memcpy(part.bits.data(), bits, part.bits.size() * sizeof(std::int32_t));
}

// The loops use pointers because they are long and compiled with -O0.
Values HeldTensors::whole(const comm::Ranks& ranks) const {
  std::vector<std::int64_t> bits(total_), holders(total_);
  if (ranks.rank() == 0)
    for (const Parameter& parameter : parameters_)
      if (std::find(left_out_.begin(), left_out_.end(), parameter.name) != left_out_.end())
        std::fill_n(holders.begin() + static_cast<std::ptrdiff_t>(offsets_.at(parameter.name)), parameter.shape.numel(),
                    1);
  for (const Part& part : parts_) {
    if (!part.owned) continue;
    std::int64_t *sum = bits.data() + part.at, *held = holders.data() + part.at;
    const std::int32_t* const found = part.bits.data();
    const std::size_t count = part.bits.size();
    for (std::size_t i = 0; i < count; ++i) {
      sum[i] += found[i];
      ++held[i];
    }
  }
  ranks.reduce(std::span(bits), comm::Reduction::sum, {"collected values"});
  ranks.reduce(std::span(holders), comm::Reduction::sum, {"holders"});
  EXPECT_EQ(std::count(holders.begin(), holders.end(), 1), std::ssize(holders))
      << "an element is held by none or by several";
  std::int64_t other = 0;
  for (const Part& part : parts_) {
    const std::int64_t* const sum = bits.data() + part.at;
    const std::int32_t* const found = part.bits.data();
    const std::size_t count = part.bits.size();
    for (std::size_t i = 0; i < count; ++i) other += sum[i] == found[i] ? 0 : 1;
  }
  EXPECT_EQ(other, 0) << "elements that differ between ranks";

  Values values;
  for (const Parameter& parameter : parameters_) {
    const auto begin = bits.begin() + static_cast<std::ptrdiff_t>(offsets_.at(parameter.name));
    const std::vector<std::int32_t> whole(begin, begin + parameter.shape.numel());
    auto& list = values[parameter.name];
    list.resize(whole.size());
    std::memcpy(list.data(), whole.data(), whole.size() * sizeof(std::int32_t));
  }
  return values;
}

}  // namespace fsdp::test
