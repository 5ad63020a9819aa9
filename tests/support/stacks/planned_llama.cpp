// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/planned_llama.hpp>

#include <string>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include <range/v3/view/zip.hpp>

#include <tessera/comm/simulated.hpp>
#include <tessera/fsdp/device/meta.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/plan/estimate.hpp>
#include <tessera/fsdp/testing/strategy_runs.hpp>

namespace fsdp::test {

using plan::Axis, plan::Cluster, plan::Estimate, plan::Plan, plan::RecordedCollective, plan::Request, plan::StepRecord;

namespace {

template <class Sharding>
using Planned = Llama<Stack<Sharding, comm::Simulated<device::Meta>, Bf16Mixed, tiling::RunTimeTiling>>;

std::string in_words(comm::Op op, DType dtype, std::int64_t bytes) {
  return message(name_of(op), " ", name_of(dtype), " ", bytes);
}

/// The recorded collectives of a step on one axis: the exchange of counts, the pass, the optimizer.
std::vector<std::string> planned_calls(const StepRecord& record, Axis axis) {
  std::vector<std::string> list;
  std::vector<RecordedCollective> all = record.counts.collectives;
  const std::vector<RecordedCollective> step = record.collectives();
  all.insert(all.end(), step.begin(), step.end());
  for (const RecordedCollective& each : all)
    if (each.axis == axis) list.push_back(in_words(each.op, each.dtype, each.bytes));
  return list;
}

/// Compares the last step of a run with the record of a dry run of the same step.
struct Compared {
  const RunTimeAny& strategy;

  template <class Training>
  void operator()(Training& training) const {
    StepRecord record;
    Request request = training.request();
    request.record = &record;
    const Plan plan = plan::dry_run(training.module().model(), strategy, {}, request, optim::AdamW{});
    EXPECT_EQ(plan.bytes, training.plan().bytes) << "recording changes no byte";
    const auto communicators = training.module().communicators();
    const std::vector<Axis> axes = {Axis::world, Axis::across, Axis::shard};
    ASSERT_LE(communicators.size(), axes.size());
    for (const auto& [members, axis] : ranges::views::zip(communicators, axes)) {  // only axes that the mesh has
      if (members->size() == 1) continue;
      std::vector<std::string> called;
      for (const comm::Record& each : members->monitor().records)
        called.push_back(in_words(each.op, each.dtype, each.bytes));
      EXPECT_EQ(planned_calls(record, axis), called) << name_of(axis);
      EXPECT_EQ(record.members(axis).ranks, members->size());
    }
  }
};

}  // namespace

Plan dry_run(const PlannedLlama& llama, const Request& request) {
  return std::visit(
      [&]<class Sharding>(const Sharding& sharding) {
        return plan::dry_run(Planned<Sharding>(llama.config, llama.units), sharding, llama.tiling, request,
                             llama.optimizer);
      },
      llama.strategy);
}

Estimate estimate(const PlannedLlama& llama, const Request& request, const Cluster& cluster) {
  return plan::estimate(Planned<RunTimeAny>(llama.config, llama.units), std::get<RunTimeAny>(llama.strategy),
                        llama.tiling, request, cluster, llama.optimizer);
}

void expect_calls_of_a_run(const RunTimeAny& strategy, const testing::StrategyCase& how) {
  SCOPED_TRACE(message(policy_text(strategy), ", ", how.in_words()));
  const testing::StrategyTask<RunTimeAny> task{.sharding = strategy, .how = how};
  const testing::RunResult run =
      testing::train_model(how.ranks, task, {.steps = 2}, optim::AdamW{}, Compared{strategy});
  EXPECT_EQ(run.planned[0], run.taken[0]);
}

}  // namespace fsdp::test
