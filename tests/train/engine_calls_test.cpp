// SPDX-License-Identifier: Apache-2.0
// What crosses the border between the training loop and a stack in a step.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include <tessera/comm/threads.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/training_run.hpp>

#include <support/stacks/series_trainer.hpp>

namespace fsdp::train {
namespace {

/// Counts the calls of another engine.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(Engine& engine) : engine_(engine) {}
  std::int64_t calls() const { return calls_; }

  const comm::Ranks& ranks() const override { return counted().ranks(); }
  const EngineFacts& facts() const override { return counted().facts(); }
  void initialize(std::uint64_t seed, bool adapters_alone) override { counted().initialize(seed, adapters_alone); }
  void load(const checkpoint::ModelFiles& files) override { counted().load(files); }
  void restore(const checkpoint::Checkpoint& from) override { counted().restore(from); }
  void require_finite() override { counted().require_finite(); }
  void write(checkpoint::Save& file) override { counted().write(file); }
  std::int64_t steps() override { return counted().steps(); }
  std::int64_t skipped() override { return counted().skipped(); }
  data::Position position() const override { return counted().position(); }
  void seek(const data::Position& position) override { counted().seek(position); }
  void step(const device::StepInputs& inputs, bool more) override { counted().step(inputs, more); }
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
  mutable std::int64_t calls_ = 0;
};

/// The calls of a rank in a run of so many steps, which neither validates nor saves.
std::int64_t calls_in(std::int64_t steps) {
  std::int64_t calls = 0;
  const TrainOptions options{.steps = steps, .seq_len = 12, .batch_size = 8};
  comm::Threads<>::run(2, {}, [&](comm::Threads<>& communicator) {
    const test::Forgetful source{{.length = 12, .windows = 44, .held_out = 0}};
    RunWatch watch(options, communicator.rank());
    const std::unique_ptr<Engine> engine = test::series_engine(communicator, options, source, watch);
    CountingEngine counting(*engine);
    EXPECT_EQ(TrainingRun(counting, options, watch, CheckpointDir(communicator, options)).run(), 0);
    if (communicator.rank() == 0) calls = counting.calls();
  });
  return calls;
}

TEST(Engine, IsCalledAtMostFifteenTimesAStep) {
  ::testing::internal::CaptureStdout();
  const std::int64_t few = calls_in(4), more = calls_in(14);
  (void)::testing::internal::GetCapturedStdout();
  EXPECT_EQ((more - few) % 10, 0);
  EXPECT_GE((more - few) / 10, 2);  // enqueues it, and takes its results
  EXPECT_LE((more - few) / 10, 15);
}

}  // namespace
}  // namespace fsdp::train
