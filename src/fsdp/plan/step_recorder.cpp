// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/plan/step_recorder.hpp>

#include <algorithm>
#include <utility>

namespace fsdp::plan {

StepRecorder::StepRecorder(StepRecord* record) : record_(record) {}
StepRecorder::~StepRecorder() = default;

void StepRecorder::watch(const Watched& watched) {
  watched_ = watched;
  *record_ = {.problem = *watched.problem,
              .schedule = *watched.schedule,
              .names = *watched.names,
              .compute = watched.compute,
              .optimizer_in_host_memory = watched.optimizer_in_host_memory};
  for (std::size_t i = 0; i < watched.axes; ++i)
    record_->axes.emplace_back(watched.communicators[i].axis, watched.communicators[i].members);
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
    if (own.members.ranks == 1) continue;
    for (std::size_t i = calls_[at]; i < own.monitor->records.size(); ++i) {
      const comm::Record& call = own.monitor->records[i];
      work.collectives.push_back({.axis = own.axis, .op = call.op, .dtype = call.dtype, .bytes = call.bytes});
    }
  }
  const std::int64_t used = watched_.used_by_inputs(watched_.inputs);
  // A copied input changes the bytes in use by its size
  work.host_bytes = std::max(used, used_) - std::min(used, used_);
  return work;
}

}  // namespace fsdp::plan
