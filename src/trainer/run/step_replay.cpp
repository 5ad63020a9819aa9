// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_replay.hpp>

#include <cmath>
#include <cstddef>
#include <span>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/queued_steps.hpp>

namespace fsdp::train {
namespace {

template <class F>
auto with_disk(const comm::Ranks& ranks, const TrainOptions& options, F f) {
  return with_disk_deadline(ranks, options.launch.disk_deadline_seconds, "replay (--disk-deadline)", f);
}

}  // namespace

StepReplay::StepReplay(Engine& engine, const ReplayRequest& request, const TrainOptions& options, const RunWatch& watch,
                       const RunRecord& recorded, const std::optional<checkpoint::TrainerState>& after)
    : engine_(engine),
      ranks_(engine.ranks()),
      request_(request),
      options_(options),
      recorded_(recorded),
      after_(after),
      run_(engine, options, watch, CheckpointDir(ranks_, options)) {
  const EngineFacts& facts = engine.facts();
  require_same_bits(recorded, facts.record);
  step_.start = {.pieces = facts.pieces,
                 .stack = facts.start.stack,
                 .model_name = options.model.name,
                 .sizes = facts.start.sizes,
                 .seed = options.seed,
                 .world = ranks_.size(),
                 .threads = facts.start.threads,
                 .instruction_set = facts.start.instruction_set};
}

StepReplay::~StepReplay() = default;

int StepReplay::run() {
  if (request_.tensors) tensors_.emplace(*request_.tensors, request_.choice, engine_.shapes());
  restore();
  open();
  if (const int signal = run_.advance(request_.step - 1); signal != 0) return 128 + signal;
  compute();
  return tell();
}

/// Restores the newest intact checkpoint before the step, or starts like the run did.
void StepReplay::restore() {
  const std::vector<std::string> mine = with_disk(ranks_, options_, [&] {
    return comm::together(ranks_, "checkpoints", [&] {
      return leads() ? checkpoints_before(request_.folder, request_.step, recorded_) : std::vector<std::string>();
    });
  });
  std::int64_t candidates = std::ssize(mine);
  ranks_.broadcast(std::as_writable_bytes(std::span(&candidates, 1)), 0, {"checkpoints"});
  for (std::size_t i = 0; i < static_cast<std::size_t>(candidates); ++i) {
    const std::string path = comm::gather_texts(ranks_, leads() ? mine[i] : "", "checkpoints").front();
    const std::string damage = with_disk(ranks_, options_, [&] { return restored(path); });
    if (damage.empty()) {
      step_.from = path;
      return;
    }
    if (leads()) print_warning(message("skipping ", path, ": ", damage));
  }
  require_random_start(request_, recorded_, candidates);
  if (after_) require_one_course({}, *after_);
  engine_.initialize(options_.seed, false);
}

/// Returns the error of a checkpoint; empty if all ranks restored it.
std::string StepReplay::restored(const std::string& path) {
  const std::string mine = comm::together(ranks_, "a checkpoint", [&]() -> std::string {
    std::optional<checkpoint::Checkpoint> from;
    try {
      from.emplace(checkpoint::Checkpoint::open(path, engine_.facts().model.read));
    } catch (const FileError& error) {
      if (!error.absent()) throw;
      return error.what();
    } catch (const InputError& broken) {
      return broken.what();
    }
    from->check_same_model(engine_.facts().model.listing);
    if (after_) require_one_course(from->state(), *after_);
    try {
      engine_.restore(*from);
    } catch (const DamageError& damage) {
      return damage.what();
    }
    run_.restore(from->state());
    return {};
  });
  for (const std::string& text : comm::gather_texts(ranks_, mine, "a checkpoint"))
    if (!text.empty()) return text;
  checkpoint::agree_on_folder(ranks_, path);
  return {};
}

void StepReplay::open() {
  with_disk(ranks_, options_, [&] {
    comm::together(ranks_, "replay", [&] {
      if (!leads()) return;
      report_.emplace(request_);
      if (tensors_) tensors_->create();
      report_->open(step_.start, tensors_ ? &*tensors_ : nullptr);
    });
    comm::together(ranks_, "--tensors", [&] {
      if (!leads() && tensors_) tensors_->join();
    });
  });
}

void StepReplay::compute() {
  if (tensors_) engine_.show_next(*tensors_);
  const auto [lr, results] = run_.make_step();
  step_.digests = results.digests;
  step_.found = {.loss = results.decision.loss / results.targets(), .norm = std::abs(results.decision.norm)};
  for (const auto& group : group_records(options_.units.groups, lr, results.norms_apart))
    if (group.grad_norm) step_.found.apart[group.name] = *group.grad_norm;
  step_.stopped = results.decision.stopped != 0;
  if (tensors_) engine_.write_weights(*tensors_);
}

int StepReplay::tell() {
  std::int64_t status = with_disk(ranks_, options_, [&] {
    return comm::together(ranks_, "replay", [&]() -> std::int64_t { return leads() ? report_->tell(step_) : 0; });
  });
  ranks_.broadcast(std::as_writable_bytes(std::span(&status, 1)), 0, {"replay"});
  if (tensors_) tensors_->keep();
  return static_cast<int>(status);
}

}  // namespace fsdp::train
