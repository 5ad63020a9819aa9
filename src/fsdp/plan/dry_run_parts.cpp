// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/dry_run_parts.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/nn/batch.hpp>
#include <tessera/fsdp/plan/step_record.hpp>

namespace fsdp::plan {
namespace {

/// Elements of each kind at rest, for each type of weights and placement of optimizer state; and rows.
using Amounts = std::vector<std::int64_t>;

/// The properties that determine the memory of a rank that steps whole tensors.
struct Load {
  Amounts amounts = {};
  std::multiset<std::pair<Role, std::vector<std::int64_t>>> stepped = {};

  friend auto operator<=>(const Load&, const Load&) = default;
};

Amounts amounts_of(GroupList groups, int rank, RowsOfRanks rows, RowsOfRanks states = {}) {
  std::map<std::pair<std::int64_t, bool>, std::vector<const GroupTensors*>> by_kind;
  for (const GroupTensors* const group : groups)
    by_kind[{group->facts().bytes_per_weight, group->facts().across == sharding::Across::shard}].push_back(group);
  const auto at = [&](RowsOfRanks list) { return list.empty() ? 0 : list[static_cast<std::size_t>(rank)]; };
  Amounts amounts{at(rows), at(states)};
  for (const auto& [kind, list] : by_kind)
    for (const std::int64_t elements : elements_of(list, rank)) amounts.push_back(elements);
  return amounts;
}

Load load_of(GroupList groups, int rank, RowsOfRanks rows) {
  Load load{.amounts = amounts_of(groups, rank, rows)};
  for (const GroupTensors* const group : groups) {
    if (!group->facts().trainable) continue;
    for (const buffer::TensorRange& range : group->stepped_ranges(rank)) {
      const Parameter& parameter = group->parameters()[static_cast<std::size_t>(range.tensor)];
      const auto extents = parameter.shape.extents.begin();
      load.stepped.emplace(parameter.role, std::vector<std::int64_t>(extents, extents + parameter.shape.rank));
    }
  }
  return load;
}

}  // namespace

std::vector<int> most_loaded_ranks(GroupList groups, int ranks, RowsOfRanks rows, RowsOfRanks states) {
  std::vector<std::pair<int, Amounts>> most;
  const auto no_more = [](const Amounts& a, const Amounts& b) {
    return std::equal(a.begin(), a.end(), b.begin(), std::less_equal<>());
  };
  for (int rank = 0; rank < ranks; ++rank) {
    const Amounts mine = amounts_of(groups, rank, rows, states);
    if (std::any_of(most.begin(), most.end(), [&](const auto& other) { return no_more(mine, other.second); })) continue;
    std::erase_if(most, [&](const auto& other) { return no_more(other.second, mine); });
    most.emplace_back(rank, mine);
  }
  std::vector<int> list;
  for (const auto& [rank, amounts] : most) list.push_back(rank);
  return list;
}

std::vector<int> one_of_each_load(GroupList groups, int ranks, RowsOfRanks rows) {
  std::map<Load, int> first_of;
  for (int rank = 0; rank < ranks; ++rank) first_of.try_emplace(load_of(groups, rank, rows), rank);
  std::vector<int> list;
  for (const auto& [load, rank] : first_of) list.push_back(rank);
  return list;
}

bool loads_ranks_alike(GroupList groups, int ranks, RowsOfRanks rows, RowsOfRanks states) {
  for (int rank = 1; rank < ranks; ++rank)
    if (amounts_of(groups, rank, rows, states) != amounts_of(groups, 0, rows, states)) return false;
  return true;
}

std::vector<std::int64_t> state_bytes_of_ranks(
    GroupList groups, int ranks, FunctionRef<std::span<const optim::StateSpec>(const Parameter&)> states) {
  const auto has_codes = [&](const GroupTensors* group) {
    return group->facts().trainable && std::ranges::any_of(group->parameters(), [&](const Parameter& parameter) {
             return std::ranges::any_of(states(parameter),
                                        [](const optim::StateSpec& state) { return state.format->type != DType::f32; });
           });
  };
  std::vector<std::int64_t> list;
  if (std::ranges::none_of(groups, has_codes)) return list;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<optim::StatePiece> pieces;
    std::size_t most = 0;
    std::int64_t trained = 0;
    for (const GroupTensors* const group : groups) {
      if (!group->facts().trainable) continue;
      for (const buffer::TensorRange& range : group->stepped_ranges(rank)) {
        pieces.push_back({.resting = trained + range.local,
                          .count = range.count,
                          .states = states(group->parameters()[static_cast<std::size_t>(range.tensor)])});
        most = std::max(most, pieces.back().states.size());
      }
      trained += elements_of({&group, 1}, rank)[0];
    }
    list.push_back(0);
    for (std::size_t state = 0; state < most; ++state) list.back() += places_of(pieces, state, trained).bytes;
  }
  return list;
}

namespace detail {

std::vector<std::int64_t> rows_of_ranks(const Request& request) {
  const int sharing = request.size().ranks_per_sequence;
  const std::int64_t rows = request.rows();
  std::vector<std::int64_t> list;
  for (int rank = 0; rows % sharing != 0 && rank < request.ranks; ++rank) {
    const nn::RowRange own = nn::rows_of_part(rows, rank % sharing, sharing);
    list.push_back(own.end - own.begin);
  }
  return list;
}

Plan largest_plan(const Request& request, const std::vector<int>& ranks, FunctionRef<Plan(const Request&)> plan_of) {
  Request one = request;
  Plan most;
  for (const int rank : ranks) {
    StepRecord record;
    one.rank = rank;
    if (request.record != nullptr) one.record = &record;
    Plan plan = plan_of(one);
    one.matmuls = nullptr;  // matmuls are the same on all ranks, so they are listed once
    if (plan.peak_bytes() <= most.peak_bytes()) continue;
    most = std::move(plan);
    if (request.record != nullptr) *request.record = std::move(record);
  }
  return most;
}

std::vector<PartPlan> sums_of_parts(const ModuleState& module, const std::vector<PartPlan>& of_groups,
                                    std::span<const comm::Record> calls) {
  const std::size_t count = module.parts().size();
  std::vector<PartPlan> sums(2 * count);  // of each strategy, for weights in 16 bits and in float
  const auto sum_of = [&](std::size_t group) -> PartPlan& {
    return sums[module.part_index(group) + (of_groups[group].dtype == DType::f32 ? count : 0)];
  };
  for (std::size_t group = 0; group < of_groups.size(); ++group) {
    const PartPlan& own = of_groups[group];
    PartPlan& sum = sum_of(group);
    sum.name = module.text_of_part(module.part_index(group));
    sum.dtype = own.dtype;
    sum.tensors += std::ssize(module.group_list()[group]->parameters());
    sum.weight_bytes += own.weight_bytes;
    sum.gradient_bytes += own.gradient_bytes;
    sum.optimizer_bytes += own.optimizer_bytes;
  }
  for (const comm::Record& call : calls) {
    const std::string_view what = call.label.what;  // as ParameterGroup labels them
    const bool gathers = what == "weights" || what == "weights across" || what == "kept weights";
    if (!gathers && what != "gradients" && what != "gradients across") continue;
    PartPlan& sum = sum_of(static_cast<std::size_t>(call.label.unit));
    (gathers ? sum.gathered_bytes : sum.reduced_bytes) += call.bytes;
  }
  std::erase_if(sums, [](const PartPlan& sum) { return sum.tensors == 0; });
  if (sums.size() == 1) sums.clear();
  return sums;
}

}  // namespace detail

StepRecorder::StepRecorder(StepRecord* record) : record_(record) {}
StepRecorder::~StepRecorder() = default;

void StepRecorder::watch(const Watched& watched) {
  watched_ = watched;
  *record_ = {.problem = *watched.problem,
              .schedule = *watched.schedule,
              .names = *watched.names,
              .compute = watched.compute,
              .optimizer_in_host_memory = watched.optimizer_in_host_memory};
  const auto& communicators = watched.communicators;
  const int shards = communicators[watched.has_groups ? 2 : 0].ranks;
  for (std::size_t i = 0; i < watched.axes; ++i) {
    const Axis axis = i == 0 || watched.has_groups ? static_cast<Axis>(i) : Axis::sequence;
    record_->axes.emplace_back(axis,
                               Members{.ranks = communicators[i].ranks, .stride = axis == Axis::across ? shards : 1});
  }
}

Observer StepRecorder::observer() {
  if (record_ == nullptr) return {};
  return {.before =
              [](void* self, const sharding::Task&) {
                auto& own = *static_cast<StepRecorder*>(self);
                if (own.active_) own.begin();
              },
          .after =
              [](void* self, const sharding::Task& task) {
                auto& own = *static_cast<StepRecorder*>(self);
                if (own.active_)
                  own.record_->tasks.push_back(
                      {.task = task,
                       .work = own.end(),
                       .activation_bytes = own.watched_.used_by_activations(own.watched_.activations)});
              },
          .state = this};
}

void StepRecorder::record_counts(FunctionRef<void()> f) { record(&StepRecord::counts, f); }
void StepRecorder::record_optimizer(FunctionRef<void()> f) { record(&StepRecord::optimizer, f); }

void StepRecorder::record(RecordedWork StepRecord::*member, FunctionRef<void()> f) {
  if (record_ == nullptr) return f();
  begin();
  f();
  record_->*member = end();
}

void StepRecorder::begin() {
  counters_ = *watched_.counters;
  matmuls_.clear();
  outer_ = std::exchange(watched_.counters->matmuls, &matmuls_);
  calls_.clear();
  for (std::size_t i = 0; i < watched_.axes; ++i) calls_.push_back(watched_.communicators[i].monitor->records.size());
  used_ = watched_.used_by_inputs(watched_.inputs);
}

RecordedWork StepRecorder::end() {
  RecordedWork work{.counters = watched_.counters->since(counters_)};
  watched_.counters->matmuls = outer_;
  if (outer_ != nullptr) outer_->insert(outer_->end(), matmuls_.begin(), matmuls_.end());
  for (const device::MatmulRecord& matmul : matmuls_) add_matmul(work.matmuls, matmul);
  for (std::size_t at = 0; at < calls_.size(); ++at) {
    const Watched::Communicator& own = watched_.communicators[at];
    if (own.ranks == 1) continue;
    for (std::size_t i = calls_[at]; i < own.monitor->records.size(); ++i) {
      const comm::Record& call = own.monitor->records[i];
      work.collectives.push_back(
          {.axis = record_->axes[at].first, .op = call.op, .dtype = call.dtype, .bytes = call.bytes});
    }
  }
  const std::int64_t used = watched_.used_by_inputs(watched_.inputs);
  // A copied input changes the bytes in use by its size
  work.host_bytes = std::max(used, used_) - std::min(used, used_);
  return work;
}

}  // namespace fsdp::plan
