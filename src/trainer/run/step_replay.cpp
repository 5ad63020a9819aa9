// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/verification/step_digest.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/digest_file.hpp>
#include <tessera/trainer/report/report.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/training_run.hpp>

#include "../report/plot.hpp"

namespace fsdp::train {
namespace {

constexpr std::int64_t large = std::int64_t{1} << 30;  // bytes of tensors above which to warn

/// Returns whether two values are equal, or both NaN.
bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
/// Compares loss and norms.
bool is_same(const report::StepPoint& a, const report::StepPoint& b) {
  const auto same_norm = [](const auto& one, const auto& other) {
    return one.first == other.first && is_same(one.second, other.second);
  };
  return is_same(a.loss, b.loss) && is_same(a.grad_norm, b.grad_norm) &&
         std::ranges::equal(a.norms_apart, b.norms_apart, same_norm);
}

std::string norms_text(const report::StepPoint& step) {
  std::string text = to_text(step.grad_norm);
  for (const auto& [name, norm] : step.norms_apart) text += message(", of ", name, " ", to_text(norm));
  return text;
}

/// Recomputes a step (replay_step). Rank 0 also writes its digest files, reports it, and compares it with --against.
class StepReplay {
  bool leads() const { return ranks_.rank() == 0; }
  template <class F>
  auto with_disk(F f) const {
    return with_disk_deadline(ranks_, options_.launch.disk_deadline_seconds, "replay (--disk-deadline)", f);
  }

 public:
  StepReplay(Engine& engine, const ReplayRequest& request, const TrainOptions& options, const RunWatch& watch,
             const RunRecord& recorded, const std::optional<checkpoint::TrainerState>& after)
      : engine_(engine),
        ranks_(engine.ranks()),
        request_(request),
        options_(options),
        recorded_(recorded),
        after_(after),
        run_(engine, options, watch, CheckpointDir(ranks_, options)) {
    require_same_bits(recorded, engine.facts().record);
    start_ = report::digest_start(engine.facts().start, engine.facts().size.micro_batches);
  }

  int run() {
    if (request_.tensors) tensors_.emplace(*request_.tensors, request_.choice, engine_.shapes());
    restore();
    with_disk([&] {
      comm::together(ranks_, "replay", [&] {
        if (leads()) open();
      });
      comm::together(ranks_, "--tensors", [&] {
        if (!leads() && tensors_) tensors_->join();
      });
    });
    if (const int signal = run_.advance(request_.step - 1); signal != 0) return 128 + signal;
    if (tensors_) engine_.show_next(*tensors_);
    const auto [lr, results] = run_.make_step();
    report::StepPoint found{.loss = results.decision.loss / results.targets(),
                            .grad_norm = std::abs(results.decision.norm)};
    for (const auto& group : group_records(options_.units.groups, lr, results.norms_apart))
      if (group.grad_norm) found.norms_apart[group.name] = *group.grad_norm;
    if (tensors_) engine_.write_weights(*tensors_);
    const StepResults& step = results;  // clang's lambdas cannot capture structured bindings
    std::int64_t status = with_disk([&] {
      return comm::together(ranks_, "replay", [&]() -> std::int64_t { return leads() ? tell(step, found) : 0; });
    });
    ranks_.broadcast(std::as_writable_bytes(std::span(&status, 1)), 0, {"replay"});
    if (tensors_) tensors_->keep();
    return static_cast<int>(status);
  }

 private:
  /// Restores the newest intact checkpoint before the step, or starts like the run did.
  void restore() {
    std::vector<std::string> mine;  // of rank 0: the run's checkpoints before the step, newest first, intact or not
    with_disk([&] {
      comm::together(ranks_, "checkpoints", [&] {
        if (!leads()) return;
        const std::string run = value_of(recorded_, checkpoint::run_identity);
        for (const checkpoint::StepFolder& each : checkpoint::step_folders_in(request_.folder))
          if (each.step < request_.step && (each.run.empty() || each.run == run)) mine.push_back(each.path.string());
      });
    });
    std::int64_t candidates = std::ssize(mine);
    ranks_.broadcast(std::as_writable_bytes(std::span(&candidates, 1)), 0, {"checkpoints"});
    for (std::size_t i = 0; i < static_cast<std::size_t>(candidates); ++i) {
      from_ = comm::gather_texts(ranks_, leads() ? mine[i] : "", "checkpoints").front();
      const std::string damage = with_disk([&] { return restored(from_); });
      if (damage.empty()) return;
      if (leads()) print_warning(message("skipping ", from_, ": ", damage));
    }
    from_ = "the beginning";
    require_random_start(request_, recorded_, candidates);
    if (after_) require_same_course({}, *after_);
    engine_.initialize(options_.seed, false);
  }

  /// Returns the error of a checkpoint; empty if all ranks restored it.
  std::string restored(const std::string& path) {
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
      if (after_) require_same_course(from->state(), *after_);
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

  /// Reads the data to compare with, and opens the files to write. Throws InputError if the data do not contain the
  /// step, or if a file contains the digests of other runs.
  void open() {
    if (request_.against) {
      const std::string& path = *request_.against;
      std::error_code error;
      require<InputError>(!std::filesystem::is_fifo(path, error), "--against ", path,
                          ": is a FIFO, and the file is read twice; give a regular file");
      if (report::holds_metrics(path)) {
        const report::PlottedRun run = report::read_run(path);
        const auto there = std::ranges::find(run.steps, request_.step, &report::StepPoint::step);
        require<InputError>(there != run.steps.end(), "--against ", path, ": has no step ", request_.step);
        metrics_ = *there;
      } else {
        theirs_ = report::read_source(path);
        const auto wanted = theirs_->file.steps.find(request_.step);
        require<InputError>(wanted != theirs_->file.steps.end(), "--against ", path, ": has no step ", request_.step);
        theirs_->file.steps = {{request_.step, std::move(wanted->second)}};
      }
    }
    if (tensors_) tensors_->create();
    if (request_.digests) digests_ = report::DigestWriter(*request_.digests);
    digests_.require_like(start_);
    if (!tensors_) return;
    beside_tensors_ = report::DigestWriter(std::filesystem::path(*request_.tensors) / report::digests_name);
    if (tensors_->bytes() > large && !request_.choice.unit && !request_.choice.piece)
      print_warning(message("--tensors ", *request_.tensors, " takes ", report::bytes_text(tensors_->bytes()),
                            "; --unit and --piece choose a part"));
  }

  /// Writes the digests and prints the result. Returns the exit status.
  int tell(const StepResults& results, const report::StepPoint& found) {
    for (report::DigestWriter* const file : {&digests_, &beside_tensors_}) {
      file->begin(start_);
      file->write(request_.step, results.digests);
    }
    std::string text = message("step ", request_.step, " of ", request_.folder, " on ", start_.world,
                               start_.world == 1 ? " rank" : " ranks", ", from ", from_, ": loss ", to_text(found.loss),
                               ", gradient norm ", norms_text(found),
                               results.decision.stopped != 0 ? "; it diverged, and touched no weight" : "", "\n");
    if (request_.digests)
      text += message("digests   ", *request_.digests, ": ", results.digests.size(), " of this step\n");
    if (request_.tensors)
      text += message("tensors   ", *request_.tensors, ": ", report::bytes_text(tensors_->bytes()), "\n");
    report::DigestDiff diff{.same = true};
    if (request_.against) diff = compared(results, found);
    for (const std::string& line : diff.lines) text += line + "\n";
    print_text(stdout, text);
    if (!diff.same)
      print_sentence(
          message("replay: step ", request_.step, " differs from that of ", *request_.against, "; stdout shows where"));
    return diff.same ? 0 : 1;
  }

  report::DigestDiff compared(const StepResults& results, const report::StepPoint& found) const {
    if (metrics_) {
      const std::string where = message("step ", request_.step, ": loss and gradient norm are ");
      if (is_same(found, *metrics_)) return {.same = true, .lines = {where + "those of " + *request_.against}};
      return {.lines = {message("they part in ", where, to_text(metrics_->loss), " and ", norms_text(*metrics_), " in ",
                                *request_.against)}};
    }
    report::DigestSource mine{.file = {.name = "this replay", .start = start_}};
    if (request_.tensors) mine.folder = *request_.tensors;
    for (const StepDigest& digest : results.digests) {
      mine.file.steps[request_.step].push_back(digest.bits);
      mine.file.places.push_back(digest);
      mine.file.places.back().bits = 0;
    }
    return report::diff(*theirs_, mine);
  }

  Engine& engine_;
  comm::Ranks ranks_;
  const ReplayRequest& request_;
  const TrainOptions& options_;
  const RunRecord& recorded_;
  const std::optional<checkpoint::TrainerState>& after_;
  TrainingRun run_;  ///< its log is never begun, so that it stays silent
  report::DigestStart start_;
  std::string from_;  ///< the checkpoint before the step
  std::optional<report::StepTensors> tensors_;
  // Set only on rank 0:
  report::DigestWriter digests_, beside_tensors_;
  std::optional<report::DigestSource> theirs_;  ///< data of --against for the step alone
  std::optional<report::StepPoint> metrics_;    ///< the same if --against is a metrics file
};

}  // namespace

int replay_step(Engine& engine, const ReplayRequest& request, const TrainOptions& options, const RunWatch& watch,
                const RunRecord& recorded, const std::optional<checkpoint::TrainerState>& after) {
  return StepReplay(engine, request, options, watch, recorded, after).run();
}

}  // namespace fsdp::train
