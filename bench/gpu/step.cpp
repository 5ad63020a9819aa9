// SPDX-License-Identifier: Apache-2.0
/// A training step of a Llama of 1.5 billion weights on one GPU, one JSON object per line: its model FLOP/s as a
/// fraction of the bf16 matmul rate of the card in the same run; the same step as a CUDA graph; then a breakdown of the
/// time by the schedule's events, in steps in which the host waits for the device after each event. BENCH_SEQUENCES=N:
/// only steps of N sequences, and no breakdown.
#include <cmath>
#include <map>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/training_step.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/nn/cuda_instances.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
#include "../../src/program/calibrate/rounds.hpp"

#include "rows.hpp"

namespace {

using namespace fsdp;
using device::Cuda;
using Comm = comm::Threads<Cuda>;
using Model = Llama<Stack<FullyShard<>, Comm, Bf16Mixed, tiling::RunTimeTiling>>;
using Module = ShardedModel<Model>;

constexpr std::int64_t sequence = 4096;
constexpr int repeats = 7;

LlamaConfig config() {
  return {.vocab_size = 32000,
          .hidden_size = 2048,
          .intermediate_size = 8192,
          .layers = 22,
          .heads = 16,
          .kv_heads = 8,
          .head_dim = 128};
}

/// Seconds by part of a step. While the clock runs, the host waits for the device after each part.
class Parts {
 public:
  void start(Module& module) {
    module_ = &module;
    last_ = gpu::seconds_now();
  }
  void stop() { module_ = nullptr; }
  /// Attributes the work that was enqueued since the last call to `part`.
  void end(const std::string& part) {
    if (module_ == nullptr) return;
    module_->stream().synchronize();
    const double now = gpu::seconds_now();
    seconds_[part] += now - last_;
    last_ = now;
  }
  Observer observer() {
    return {.before = [](void* self, const sharding::Task&) { static_cast<Parts*>(self)->end("between tasks"); },
            .after = [](void* self, const sharding::Task& task) { static_cast<Parts*>(self)->end(task); },
            .state = this};
  }
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  void end(const sharding::Task& task) {
    if (module_ == nullptr) return;
    const auto last = static_cast<int>(module_->uses().size()) - 1;
    const std::string unit = task.index == 0 ? "embedding" : task.index == last ? "head" : "blocks";
    end(std::string(name_of(task.action)) + (sharding::computes(task.action) ? " " + unit : ""));
  }

  Module* module_ = nullptr;
  double last_ = 0;
  std::map<std::string, double> seconds_;
};

/// A model, its optimizer and one batch.
class Run {
 public:
  Run(Comm& communicator, std::int64_t sequences)
      : model_(config()),
        plan_(plan::dry_run(model_, {}, {}, {.shape = shape(sequences)})),
        module_(communicator, model_, {}, shape(sequences, plan_)),
        optimizer_(module_, {}),
        executor_(module_, parts_.observer()),
        graphs_(module_, executor_, optimizer_, true),
        tokens_(static_cast<std::size_t>(sequences * sequence + 1)) {
    std::uint32_t state = 1;
    for (std::int32_t& token : tokens_) {
      state = state * 1664525u + 1013904223u;
      token = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(config().vocab_size));
    }
    const std::int64_t count = sequences * sequence;
    batch_ = {.tokens = {tokens_.data(), {count}}, .targets = {tokens_.data() + 1, {count}}, .sequences = sequences};
    set_weights();
  }

  /// Runs forward, backward, gradient norm and AdamW; returns the mean loss. Only this function depends on Executor and
  /// AdamW.
  double step() {
    const auto targets = static_cast<double>(batch_.targets.numel());
    executor_.queue_training({&batch_, 1}, static_cast<float>(1.0 / targets));
    parts_.end("between tasks");
    optimizer_.step(executor_.loss(), {.lr = 1e-4});
    module_.stream().synchronize();
    parts_.end("norm and adamw");
    return optimizer_.control().decision().loss / targets;
  }

  /// Runs the same step as a graph. The first step is enqueued normally, the second is captured.
  double graph_step() {
    const auto targets = static_cast<double>(batch_.targets.numel());
    graphs_.queue({&batch_, 1}, static_cast<float>(1.0 / targets), {.lr = 1e-4}, true);
    module_.stream().synchronize();
    return optimizer_.control().decision().loss / targets;
  }

  /// Returns the seconds of a step by part, as means over `steps` steps.
  std::map<std::string, double> parts(int steps) {
    parts_.start(module_);
    for (int i = 0; i < steps; ++i) step();
    parts_.stop();
    std::map<std::string, double> mean = parts_.seconds();
    for (auto& [name, seconds] : mean) seconds /= steps;
    return mean;
  }

  /// Backward of attention recomputes the scores: one of its five products, which does not count as model FLOPs.
  double model_flops() const {
    return static_cast<double>(plan_.work.matmul_flops) + 6.0 / 7.0 * static_cast<double>(plan_.work.attention_flops);
  }
  std::int64_t planned_bytes() const { return plan_.peak_bytes(); }
  std::int64_t peak_bytes() const {
    std::int64_t sum = 0;
    for (const std::int64_t part : module_.peak_bytes()) sum += part;
    return sum;
  }

 private:
  static RunShape shape(std::int64_t sequences, const plan::Plan& plan = {}) {
    return {.size = {.sequences = sequences, .sequence_length = sequence},
            .activation_bytes = plan.activation_bytes,
            .plans = plan.plans};
  }
  /// Sets weights as optim::initialize does, but with repeated values: 1.5 billion values would take a minute on one
  /// thread.
  void set_weights() {
    std::vector<float> values(std::size_t{1} << 20);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(0.02 * optim::normal_at(1, static_cast<std::int64_t>(i)));
    for (const auto& piece : module_.shards())
      gpu::fill_with(module_.stream(),
                     piece.parameter->initial == nn::Initial::ones ? std::vector<float>(4096, 1.0f) : values,
                     Tensor<float>(piece.main.data(), {piece.main.numel()}));
    module_.sync_model_weights();
  }

  Model model_;
  plan::Plan plan_;
  Module module_;
  optim::ShardedOptimizer<typename ShardedModel<Model>::Stack> optimizer_;
  Parts parts_;
  Executor<Model> executor_;
  optim::TrainingStep<Model> graphs_;
  std::vector<std::int32_t> tokens_;
  TokenBatch batch_;
};

struct Timed {
  double seconds = 0, loss = 0;
};

/// Returns the median of `repeats` samples.
template <class Step>
Timed timed(const Step& step) {
  std::vector<double> seconds;
  double loss = 0;
  for (int i = 0; i < repeats; ++i) {
    const double start = gpu::seconds_now();
    loss = step();
    seconds.push_back(gpu::seconds_now() - start);
  }
  require<Error>(std::isfinite(loss), "the step's loss is ", loss);
  return {.seconds = calibrate::median(seconds), .loss = loss};
}

/// The value of BENCH_SEQUENCES; 0 without it.
std::int64_t only_sequences() {
  const char* const value = std::getenv("BENCH_SEQUENCES");
  return value == nullptr ? 0 : std::atoll(value);
}

void measure_graph(Run& run, const std::string& name, double queued_seconds) {
  for (int i = 0; i < 2; ++i) run.graph_step();  // one is enqueued normally, one captured
  const auto [seconds, loss] = timed([&] { return run.graph_step(); });
  std::printf("{\"bench\": \"%s, as a graph\", \"ms\": %.2f, \"ratio_to_queued\": %.3f, \"loss\": %.4f}\n",
              name.c_str(), 1e3 * seconds, seconds / queued_seconds, loss);
}

void measure(Comm& communicator, std::int64_t sequences, double card_rate, const gpu::TimeLeft& left) {
  const std::string name = "step of a 1.5-billion Llama, " + std::to_string(sequences) + " x 4096 tokens";
  if (!left.suffices(name, 20)) return;
  Run run(communicator, sequences);
  run.step();  // loads libraries and kernels
  const double begin = gpu::seconds_now();
  run.step();
  const double estimate = gpu::seconds_now() - begin;
  if (!left.suffices(name, (2 * repeats + 4) * estimate)) return;
  const auto [step, loss] = timed([&] { return run.step(); });
  const double rate = run.model_flops() / step;
  std::printf(
      "{\"bench\": \"%s\", \"parameters\": %lld, \"ms\": %.2f, \"tokens_per_second\": %.0f, \"tflops\": %.1f, "
      "\"matmul_tflops\": %.1f, \"share_of_matmul_rate\": %.3f, \"peak_bytes\": %lld, \"planned_bytes\": %lld, "
      "\"loss\": %.4f}\n",
      name.c_str(), static_cast<long long>(parameter_count(Model(config()))), 1e3 * step,
      static_cast<double>(sequences * sequence) / step, rate / 1e12, card_rate / 1e12, rate / card_rate,
      static_cast<long long>(run.peak_bytes()), static_cast<long long>(run.planned_bytes()), loss);
  measure_graph(run, name, step);
  if (only_sequences() != 0) return;
  std::printf("{\"bench\": \"%s, parts\"", name.c_str());
  double sum = 0;
  for (const auto& [part, part_seconds] : run.parts(2)) {
    sum += part_seconds;
    std::printf(", \"%s ms\": %.2f", part.c_str(), 1e3 * part_seconds);
  }
  std::printf(", \"sum_ms\": %.2f, \"sum_to_step\": %.3f}\n", 1e3 * sum, sum / step);
  std::fflush(stdout);
}

void bench_step(const gpu::TimeLeft& left) {
  const double card_rate = gpu::matmul_rate();
  for (const std::int64_t sequences : {4, 1}) {
    if (only_sequences() != 0 && only_sequences() != sequences) continue;
    try {
      Comm::run(1, {}, [&](Comm& communicator) { measure(communicator, sequences, card_rate, left); });
    } catch (const MemoryError& error) {
      std::printf("{\"bench\": \"step of a 1.5-billion Llama, %lld x 4096 tokens\", \"left_out\": \"%s\"}\n",
                  static_cast<long long>(sequences), error.what());
    }
  }
}

}  // namespace

int main(int argc, char** argv) { return fsdp::gpu::run_bench(argc, argv, bench_step); }
