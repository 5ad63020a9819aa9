// SPDX-License-Identifier: Apache-2.0
// Which calls the training loop makes to a stack, and when.
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/training_run.hpp>

#include <support/stacks/series_trainer.hpp>

namespace fsdp::train {
namespace {

/// An engine that forwards to another one and counts the calls. `asynchronous`: reports a device whose steps are
/// enqueued.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(Engine& engine, bool asynchronous = false) : engine_(engine), facts_(engine.facts()) {
    facts_.asynchronous = asynchronous;
  }
  std::int64_t calls() const { return calls_; }

  const comm::Ranks& ranks() const override { return counted().ranks(); }
  const EngineFacts& facts() const override { return ++calls_, facts_; }
  void initialize(std::uint64_t seed, bool adapters_alone) override { counted().initialize(seed, adapters_alone); }
  void load(const checkpoint::ModelFiles& files) override { counted().load(files); }
  void restore(const checkpoint::Checkpoint& from) override { counted().restore(from); }
  void require_finite() override { counted().require_finite(); }
  void write(checkpoint::Save& file) override { counted().write(file); }
  std::int64_t steps() override { return counted().steps(); }
  std::int64_t skipped() override { return counted().skipped(); }
  data::Position position() const override { return counted().position(); }
  void seek(const data::Position& position) override { counted().seek(position); }
  const StepResults& step(const device::StepInputs& inputs, bool more) override { return counted().step(inputs, more); }
  StepResults results() override { return counted().results(); }
  comm::SignalRequests asked() override { return counted().asked(); }
  comm::MeshTraffic traffic() override { return counted().traffic(); }
  std::int64_t peak_bytes() const override { return counted().peak_bytes(); }
  HeldOutBatch evaluate(std::span<const std::int64_t> samples, const comm::SignalRequests& asked) override {
    return counted().evaluate(samples, asked);
  }
  std::vector<float> logits(std::span<const std::int32_t> tokens, std::int64_t row) override {
    return counted().logits(tokens, row);
  }
  report::StepShapes shapes() override { return counted().shapes(); }
  void show_next(report::StepTensors& tensors) override { counted().show_next(tensors); }
  void write_weights(report::StepTensors& tensors) override { counted().write_weights(tensors); }

 private:
  Engine& counted() const { return ++calls_, engine_; }

  Engine& engine_;
  EngineFacts facts_;
  mutable std::int64_t calls_ = 0;
};

/// Calls f(engine, options, watch) on both ranks of a small model.
template <class F>
void on_ranks(const TrainOptions& options, const F& f) {
  comm::Threads<>::run(2, {}, [&](comm::Threads<>& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 0}};
    RunWatch watch(options, communicator.rank());
    f(*test::series_engine(communicator, options, source, watch), options, watch);
  });
}

/// The number of calls of a rank in a run of `steps` steps without validation and checkpoints.
std::int64_t calls_in(std::int64_t steps) {
  std::int64_t calls = 0;
  const TrainOptions options{.steps = steps, .seq_len = 12, .batch_size = 8};
  on_ranks(options, [&](Engine& engine, const TrainOptions& all, const RunWatch& watch) {
    CountingEngine counting(engine);
    EXPECT_EQ(TrainingRun(counting, all, watch, CheckpointDir(engine.ranks(), all)).run(), 0);
    if (engine.ranks().rank() == 0) calls = counting.calls();
  });
  return calls;
}

TEST(Engine, IsCalledAtMostFifteenTimesPerStep) {
  ::testing::internal::CaptureStdout();
  const std::int64_t few = calls_in(4), more = calls_in(14);
  (void)::testing::internal::GetCapturedStdout();
  EXPECT_EQ((more - few) % 10, 0);
  EXPECT_GE((more - few) / 10, 2);  // at least one call to enqueue a step and one to read its results
  EXPECT_LE((more - few) / 10, 15);
}

/// The loss of a step that is made synchronously after the steps before it.
double loss_of(std::int64_t step, bool asynchronous) {
  double loss = 0;
  const TrainOptions options{.steps = 9, .seq_len = 12, .batch_size = 8};
  on_ranks(options, [&](Engine& engine, const TrainOptions& all, const RunWatch& watch) {
    CountingEngine own(engine, asynchronous);
    own.initialize(all.seed, false);
    TrainingRun run(own, all, watch, CheckpointDir(engine.ranks(), all));
    EXPECT_EQ(run.advance(step - 1), 0);
    const double found = run.make_step().second.decision.loss;
    if (engine.ranks().rank() == 0) loss = found;
  });
  return loss;
}

TEST(TrainingRun, ASynchronousStepReturnsItsOwnResultsAfterAQueuedStep) {
  EXPECT_NE(loss_of(3, false), loss_of(4, false));
  EXPECT_EQ(loss_of(4, true), loss_of(4, false));
}

}  // namespace
}  // namespace fsdp::train
