// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/step_replay.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/queued_steps.hpp>

#include "../report/plot.hpp"

namespace fsdp::train {
namespace {

constexpr std::int64_t large = std::int64_t{1} << 30;  // bytes of tensors above which to warn

/// Returns whether a file contains metrics and not digests, as its first line about a step shows.
bool holds_metrics(const std::string& path) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    const auto line = nlohmann::json::parse(text, nullptr, false);
    if (!line.is_object() || line.contains("event")) continue;
    return line.contains("loss");
  }
  return false;
}

LossAndNorm metrics_of(const std::string& path, std::int64_t step) {
  const report::PlottedRun run = report::read_run(path);
  const auto there = std::ranges::find(run.steps, step, &report::StepPoint::step);
  require<InputError>(there != run.steps.end(), "--against ", path, ": has no step ", step);
  return {.loss = there->loss, .norm = there->grad_norm, .apart = there->norms_apart};
}

/// Returns whether two values are equal, or both NaN.
bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool is_same(const LossAndNorm& a, const LossAndNorm& b) {
  const auto same_norm = [](const auto& one, const auto& other) {
    return one.first == other.first && is_same(one.second, other.second);
  };
  return is_same(a.loss, b.loss) && is_same(a.norm, b.norm) && std::ranges::equal(a.apart, b.apart, same_norm);
}

std::string norms_text(const LossAndNorm& step) {
  std::string text = to_text(step.norm);
  for (const auto& [name, norm] : step.apart) text += message(", of ", name, " ", to_text(norm));
  return text;
}

}  // namespace

ReplayReport::ReplayReport(const ReplayRequest& request) : request_(request) {
  if (!request.against) return;
  std::error_code error;
  require<InputError>(!std::filesystem::is_fifo(*request.against, error), "--against ", *request.against,
                      ": is a FIFO, and the file is read twice; give a regular file");
  if (holds_metrics(*request.against)) {
    metrics_ = metrics_of(*request.against, request.step);
    return;
  }
  theirs_ = report::read_source(*request.against);
  const auto wanted = theirs_->file.steps.find(request.step);
  require<InputError>(wanted != theirs_->file.steps.end(), "--against ", *request.against, ": has no step ",
                      request.step);
  theirs_->file.steps = {{request.step, std::move(wanted->second)}};
}

void ReplayReport::open(const report::DigestStart& start, const report::StepTensors* tensors) {
  if (request_.digests) digests_ = report::DigestWriter(*request_.digests);
  digests_.require_like(start);
  if (tensors == nullptr) return;
  beside_tensors_ = report::DigestWriter(std::filesystem::path(*request_.tensors) / report::digests_name);
  tensor_bytes_ = tensors->bytes();
  if (tensor_bytes_ > large && !request_.choice.unit && !request_.choice.piece)
    print_warning(message("--tensors ", *request_.tensors, " takes ", report::bytes_text(tensor_bytes_),
                          "; --unit and --piece choose a part"));
}

report::DigestDiff ReplayReport::compared(const ReplayedStep& step) const {
  if (metrics_) {
    const std::string where = message("step ", request_.step, ": loss and gradient norm are ");
    if (is_same(step.found, *metrics_)) return {.same = true, .lines = {where + "those of " + *request_.against}};
    return {.lines = {message("they part in ", where, to_text(metrics_->loss), " and ", norms_text(*metrics_), " in ",
                              *request_.against)}};
  }
  report::DigestSource mine{.file = {.name = "this replay", .start = step.start}};
  if (request_.tensors) mine.folder = *request_.tensors;
  for (const StepDigest& digest : step.digests) {
    mine.file.steps[request_.step].push_back(digest.bits);
    mine.file.places.push_back(digest);
    mine.file.places.back().bits = 0;
  }
  return report::diff(*theirs_, mine);
}

int ReplayReport::tell(const ReplayedStep& step) {
  for (report::DigestWriter* const file : {&digests_, &beside_tensors_}) {
    file->begin(step.start);
    file->write(request_.step, step.digests);
  }
  std::string text =
      message("step ", request_.step, " of ", request_.folder, " on ", step.start.world,
              step.start.world == 1 ? " rank" : " ranks", ", from ", step.from.empty() ? "the beginning" : step.from,
              ": loss ", to_text(step.found.loss), ", gradient norm ", norms_text(step.found),
              step.stopped ? "; it diverged, and touched no weight" : "", "\n");
  if (request_.digests) text += message("digests   ", *request_.digests, ": ", step.digests.size(), " of this step\n");
  if (request_.tensors) text += message("tensors   ", *request_.tensors, ": ", report::bytes_text(tensor_bytes_), "\n");
  report::DigestDiff found{.same = true};
  if (request_.against) found = compared(step);
  for (const std::string& line : found.lines) text += line + "\n";
  print_text(stdout, text);
  if (!found.same)
    print_sentence(
        message("replay: step ", request_.step, " differs from that of ", *request_.against, "; stdout shows where"));
  return found.same ? 0 : 1;
}

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
