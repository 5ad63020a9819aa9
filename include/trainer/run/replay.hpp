// SPDX-License-Identifier: Apache-2.0
/// @file
/// Computes one step of a run again, from its checkpoints and its record: digests, and tensors, of that step.
///
/// The run stays unchanged: its checkpoints are read, and none is written. With pieces the step has the same bits on
/// any number of ranks; without, it takes the ranks and the strategy of the run.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/comm/agreement.hpp>
#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/comm/together.hpp>
#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/core/dtype.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/device/on_host.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/fsdp/execution/step_digests.hpp>
#include <tessera/fsdp/execution/stream_probe.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/optim/initialize.hpp>
#include <tessera/fsdp/sharding/schedule_of.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/data/sampler.hpp>
#include <tessera/trainer/data/source.hpp>
#include <tessera/trainer/data/text_source.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/commands.hpp>
#include <tessera/trainer/run/feed.hpp>
#include <tessera/trainer/run/output_files.hpp>
#include <tessera/trainer/run/queued_steps.hpp>
#include <tessera/trainer/run/replay_report.hpp>
#include <tessera/trainer/run/replay_request.hpp>
#include <tessera/trainer/run/resumed.hpp>
#include <tessera/trainer/run/run_log.hpp>
#include <tessera/trainer/run/run_record.hpp>
#include <tessera/trainer/run/same_bits.hpp>
#include <tessera/trainer/run/step_plan.hpp>
#include <tessera/trainer/run/tokenized_data.hpp>

namespace fsdp::train {

/// Computes a step of a recorded run again.
template <fsdp::Model Model, data::Source Source, class Optimizer = optim::RunTimeOptimizer>
class Replay {
 public:
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  using Device = typename Stack::Device;
  using Compute = typename Stack::Precision::Compute;

  /// The references must outlive it. `options`: those of the run, with its data and its threads. `after`: the state of
  /// the later checkpoint that has `recorded`, if it is from one.
  Replay(Comm& communicator, const ReplayRequest& request, const TrainOptions& options, const RunRecord& recorded,
         const std::optional<checkpoint::TrainerState>& after, const Model& model, const Source& source,
         const typename Stack::Sharding& sharding, const typename Stack::Tiling& tiling, const Optimizer& optimizer)
      : communicator_(communicator),
        request_(request),
        options_(options),
        recorded_(recorded),
        after_(after),
        pieces_(sharding::facts_of(sharding).pieces),
        size_(size_of(communicator, options, pieces_)),
        training_(communicator, model, size_, sharding, tiling,
                  {.optimizer = optimizer,
                   .rules = {.clip = options.clip, .skips_overflow = loss_scale_of(options).has_value()}}),
        feed_(training_.module().sequence_group(), training_.counts(), source,
              data::sampler_of(source, options.seed, options.batch_size), size_.sequences, size_.micro_batches, pieces_,
              signals_),
        log_(communicator, options, nn::unit_of<typename Model::Batch>()),
        queued_(options, log_) {
    const std::string stack = stack_text(communicator, policy_texts<Stack>(sharding, tiling), options.sequence);
    if (pieces_ > 0) agree_on_last_bits(communicator, last_bits<Device>(training_.request().shape.threads));
    require_same_bits(
        recorded, run_record(options, model, sharding, tiling, training_.optimizer().optimizer(), training_.request(),
                             stack, agreed_data(communicator, options, model, source)));
    step_.start = {.pieces = all_pieces(),
                   .stack = stack,
                   .model_name = options.model.name,
                   .sizes = values_of(model.config()),
                   .seed = options.seed,
                   .world = communicator.size(),
                   .threads = training_.request().shape.threads,
                   .instruction_set = device::arithmetic()};
  }

  /// Returns the exit status: 0, 1 if the run computed something else, or 128 + a signal that ended the replay.
  [[nodiscard]] int run() {
    if (request_.tensors) tensors_.emplace(*request_.tensors, request_.choice, shapes());
    restore();
    open();
    while (steps() + 1 < request_.step) {
      queue_step();
      queued_.report(optimizer().control().decision(), optimizer().control().norms_apart(), 0, 0, {});
      if (const int signal = feed_.asked().stop; signal != 0) return 128 + signal;
    }
    compute();
    return tell();
  }

 private:
  using Kind = StepDigest::Kind;

  static StepSize size_of(const Comm& communicator, const TrainOptions& options, int pieces) {
    StepSize size = step_size(options, communicator.size(), pieces);
    size.logit_rows = 0;
    size.digests = true;
    return size;
  }

  auto& module() { return training_.module(); }
  auto& optimizer() { return training_.optimizer(); }
  std::int64_t steps() { return optimizer().steps(); }
  bool leads() const { return communicator_.rank() == 0; }
  int all_pieces() { return pieces_ > 0 ? pieces_ : module().sequence_group().count * size_.micro_batches; }
  template <class F>
  auto with_disk(F f) {
    return with_disk_deadline(communicator_, options_.launch.disk_deadline_seconds, "replay (--disk-deadline)", f);
  }

  report::StepShapes shapes() {
    report::StepShapes shapes{.units = module().names().units,
                              .first_backward = module().first_backward(),
                              .pieces = all_pieces(),
                              .stream = {size_.sequences * size_.sequence_length, module().model().hidden()},
                              .type = dtype_of<Compute>()};
    const std::map<std::string, int> first = first_units(module());
    shapes.parameters.resize(shapes.units.size());
    for (const auto& group : module().groups()) {
      if (!group.facts().trainable) continue;
      for (const Parameter& parameter : group.parameters()) {
        const std::int64_t* const extents = parameter.shape.extents.data();
        shapes.parameters[static_cast<std::size_t>(first.at(parameter.name))].push_back(
            {.name = parameter.name, .shape = {extents, extents + parameter.shape.rank}});
      }
    }
    // The order of groups depends on flags; equal steps must give equal files.
    for (auto& list : shapes.parameters) std::ranges::sort(list, {}, &checkpoint::NamedShape::name);
    for (int unit = 0; unit < static_cast<int>(shapes.units.size()); ++unit) {
      std::vector<int>& uses = shapes.uses.emplace_back();
      for (const Reference& reference : module().references(unit))
        if (reference.present()) uses.push_back(first.at(module().parameter(reference).name));
    }
    return shapes;
  }

  /// Restores the newest sound checkpoint before the step, or begins as the run did.
  void restore() {
    const std::vector<std::string> mine = with_disk([&] {
      return comm::together(communicator_, "checkpoints", [&] {
        return leads() ? checkpoints_before(request_.folder, request_.step, recorded_) : std::vector<std::string>();
      });
    });
    std::int64_t candidates = std::ssize(mine);
    comm::Ranks(communicator_).broadcast(std::as_writable_bytes(std::span(&candidates, 1)), 0, {"checkpoints"});
    for (std::size_t i = 0; i < static_cast<std::size_t>(candidates); ++i) {
      const std::string path = comm::gather_texts(communicator_, leads() ? mine[i] : "", "checkpoints").front();
      const std::string damage = with_disk([&] { return restored(path); });
      if (damage.empty()) {
        step_.from = path;
        return;
      }
      if (leads()) print_warning(message("skipping ", path, ": ", damage));
    }
    require_random_start(request_, recorded_, candidates);
    if (after_) require_one_course({}, *after_);
    optim::initialize(module(), options_.seed);
  }
  /// Returns what is wrong with a checkpoint; empty if all ranks restored it.
  std::string restored(const std::string& path) {
    const std::string mine = comm::together(communicator_, "a checkpoint", [&]() -> std::string {
      std::optional<checkpoint::Checkpoint> from;
      try {
        from.emplace(checkpoint::Checkpoint::open(path, checkpoint::read_listing_with<Model>({})));
      } catch (const FileError& error) {
        if (!error.absent()) throw;
        return error.what();
      } catch (const InputError& broken) {
        return broken.what();
      }
      from->check_same_model(checkpoint::listing_of(module().model()));
      if (after_) require_one_course(from->state(), *after_);
      try {
        train::restore(module(), optimizer(), *from);
      } catch (const DamageError& damage) {
        return damage.what();
      }
      feed_.restore({.epoch = from->state().epoch, .index = from->state().index});
      queued_.restore(from->state().tokens, from->state().loss_scale);
      return {};
    });
    for (const std::string& text : comm::gather_texts(communicator_, mine, "a checkpoint"))
      if (!text.empty()) return text;
    checkpoint::agree_on_folder(communicator_, path);
    return {};
  }

  void open() {
    with_disk([&] {
      comm::together(communicator_, "replay", [&] {
        if (!leads()) return;
        report_.emplace(request_);
        if (tensors_) tensors_->create();
        report_->open(step_.start, tensors_ ? &*tensors_ : nullptr);
      });
      comm::together(communicator_, "--tensors", [&] {
        if (!leads() && tensors_) tensors_->join();
      });
    });
    if (tensors_) training_.executor().watch().show_streams({.see = see_stream, .state = this});
  }

  QueuedStep queue_step() {
    const std::int64_t index = steps();
    now_ = index + 1 == request_.step;
    const auto batch = feed_.take(!now_);
    const QueuedStep step = queued_.add(index, batch.counts, std::chrono::steady_clock::now());
    const std::function<void()> write = [this] { write_gradients(); };
    training_.queue(batch.micro_batches, static_cast<float>(step.loss_scale / step.targets()),
                    {.lr = step.lr, .loss_scale = step.loss_scale}, false,
                    now_ && tensors_ ? write : std::function<void()>());
    return step;
  }

  /// The step itself.
  void compute() {
    const QueuedStep step = queue_step();
    if (tensors_)
      comm::together(communicator_, "--tensors", [&] {
        if (stream_error_) std::rethrow_exception(stream_error_);
      });
    step_.digests = training_.executor().watch().steps()->collect();
    const device::StepDecision& found = optimizer().control().decision();
    step_.found = {.loss = found.loss / step.targets(), .norm = std::abs(found.norm)};
    for (const auto& group : group_records(options_.units.groups, step.lr, optimizer().control().norms_apart()))
      if (group.grad_norm) step_.found.apart[group.name] = *group.grad_norm;
    step_.stopped = found.stopped != 0;
    if (tensors_) write_weights();
  }

  /// Called with each stream of a pass.
  static void see_stream(void* state, const sharding::Task& task, Tensor<const Compute> values) {
    Replay& own = *static_cast<Replay*>(state);
    const Kind kind = task.action == sharding::Action::forward ? Kind::forward : Kind::backward;
    const int piece = own.module().step_piece(task.micro_batch).value();
    if (!own.now_ || !own.tensors_->wants(kind, task.index, piece)) return;
    if (own.stream_error_) return;
    try {
      own.write_stream(kind, task.index, piece, values);
    } catch (...) {  // the others are in the pass, and wait for this rank
      own.stream_error_ = std::current_exception();
    }
  }
  void write_stream(Kind kind, int unit, int piece, Tensor<const Compute> values) {
    device::OnHost<Device, const Compute> host(module().stream(), values);
    const Tensor<const Compute> there = host.values();
    if constexpr (std::is_same_v<Compute, float>) {
      tensors_->write_stream(kind, unit, piece, {there.data(), static_cast<std::size_t>(there.numel())});
    } else {
      const std::vector<float> wide(there.data(), there.data() + there.numel());
      tensors_->write_stream(kind, unit, piece, wide);
    }
  }
  /// Calls f(piece) for this rank's own pieces of all that the step changes.
  template <class F>
  void for_each_stepped(F f) {
    with_disk([&] {
      comm::together(communicator_, "--tensors", [&] {
        for (const auto& piece : module().shards())
          if (piece.owned && module().is_stepped(piece)) f(piece);
      });
    });
  }
  void write_gradients() {
    for_each_stepped([&](const auto& piece) {
      device::OnHost<Device, const float> host(module().stream(), piece.gradient);
      const Tensor<const float> values = host.values();
      tensors_->write_parameter(Kind::gradient, piece.parameter->name, piece.begin,
                                {values.data(), static_cast<std::size_t>(values.numel())});
    });
  }
  void write_weights() {
    for_each_stepped([&](const auto& piece) {
      with_host_weights(module(), piece, Access::read, [&](Tensor<const float> values, std::int64_t begin) {
        tensors_->write_parameter(Kind::weights, piece.parameter->name, begin,
                                  {values.data(), static_cast<std::size_t>(values.numel())});
      });
    });
    with_disk([&] { comm::together(communicator_, "--tensors", [&] { tensors_->finish(); }); });
  }

  int tell() {
    std::int64_t status = with_disk([&] {
      return comm::together(communicator_, "replay",
                            [&]() -> std::int64_t { return leads() ? report_->tell(step_) : 0; });
    });
    comm::Ranks(communicator_).broadcast(std::as_writable_bytes(std::span(&status, 1)), 0, {"replay"});
    if (tensors_) tensors_->keep();
    return static_cast<int>(status);
  }

  comm::CatchSignals signals_{comm::CatchSignals::Later()};  ///< for the feed: a stop ends the process
  Comm& communicator_;
  const ReplayRequest& request_;
  const TrainOptions& options_;
  const RunRecord& recorded_;
  const std::optional<checkpoint::TrainerState>& after_;
  int pieces_;  ///< as Trainer's
  StepSize size_;
  Training<Model, Optimizer> training_;
  Feed<Comm, Source> feed_;
  RunLog log_;  ///< never begun, so that it stays silent
  QueuedSteps queued_;
  std::optional<report::StepTensors> tensors_;
  std::optional<ReplayReport> report_;  ///< on rank 0
  ReplayedStep step_;
  std::exception_ptr stream_error_;  ///< the first of this rank while a pass ran
  bool now_ = false;                 ///< the requested step is being computed
};

/// `tessera replay` on one stack. `recorded` and `after`: as Replay's. `options`: the recorded run's, with its data, a
/// checkpoint's folder as --model, and how ranks are started now; `flags` are bound to them. Rank 0 prints the
/// warnings. Returns the exit status.
template <class Model, class Optimizer>
int replay(const ReplayRequest& request, const TrainOptions& options, const FlagSet& flags, const RunRecord& recorded,
           const std::optional<checkpoint::TrainerState>& after, std::span<const std::string> warnings,
           const ShardingOf<Model>& sharding, const TilingOf<Model>& tiling, const Optimizer& optimizer) {
  using Comm = typename Model::Stack::Comm;
  validate_constants(optimizer);
  validate(options.launch);
  return launch<Comm>(options.launch, [&](Comm& communicator) -> int {
    if (communicator.rank() == 0)
      for (const std::string& warning : warnings) print_warning(warning);
    comm::agree_on_arguments(communicator, arguments_text<Model>(flags, sharding, tiling) + given_text(options.model) +
                                               optimizer_lines(optimizer) + request_text(request));
    agree_on_instruction_set(communicator);
    validate(request, options);
    require_ranks(recorded, communicator.size());
    validate(flags, options, communicator.size(), sharding::facts_of(sharding).pieces);
    const double limit = options.launch.disk_deadline_seconds;
    read_together(communicator, limit, "--digests", [&] {
      if (communicator.rank() == 0) require_apart(request, options);
    });
    const Model model = read_together(communicator, limit, "a checkpoint", [&] { return model_of<Model>(options); });
    const std::int64_t vocabulary = vocabulary_of(model);
    const TokenizedData data =
        tokenized(communicator, options,
                  {.model_folder = options.model.name, .made = request.folder + "/tokens", .vocabulary = vocabulary});
    const data::TextSource source = read_together(communicator, limit, "--data", [&] {
      return text_of(options, data.names(), options.validation_fraction, vocabulary);
    });
    return Replay<Model, data::TextSource, Optimizer>(communicator, request, options, recorded, after, model, source,
                                                      sharding, tiling, optimizer)
        .run();
  });
}

}  // namespace fsdp::train
