// SPDX-License-Identifier: Apache-2.0
/// Training runs with CUDA graphs that end abnormally. Each must end soon, with a status and a message.
///
/// usage: bench_killed error|silence|signal
///   error    the last rank throws an error after its steps have become graphs: status 1, and the error
///   silence  the last rank stops participating (two GPUs and NCCL): status 3, and the time limit of the others
///   signal   runs steps until SIGTERM or SIGINT arrives: status 128 + signal, and the step
/// Uses two ranks over NCCL if NCCL and two GPUs are available, otherwise one rank.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#if defined(TESSERA_GPU_NCCL)
#include <tessera/comm/nccl.hpp>
#endif
#include <tessera/comm/launch/launch.hpp>
#include <tessera/comm/launch/signals.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/device/cuda.hpp>
#include <tessera/fsdp/execution/executor.hpp>
#include <tessera/fsdp/execution/training_step.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/module/host_weights.hpp>
#include <tessera/fsdp/nn/cuda_instances.hpp>
#include <tessera/fsdp/optim/sharded_optimizer.hpp>
#include <tessera/fsdp/plan/dry_run.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>

namespace {

using namespace fsdp;
using device::Cuda;

constexpr std::int64_t sequence = 64;
constexpr int planted_at = 5;  ///< step of the planted failure; steps are graphs from the third on

LlamaConfig config() {
  return {.vocab_size = 64,
          .hidden_size = 128,
          .intermediate_size = 128,
          .layers = 2,
          .heads = 2,
          .kv_heads = 1,
          .head_dim = 64};
}

/// A small model that repeats steps on one batch, by graphs.
template <class Comm>
class Training {
  using Model = Llama<Stack<FullyShard<>, Comm, Bf16Mixed, tiling::Untiled>>;

 public:
  explicit Training(Comm& communicator)
      : model_(config()),
        plan_(plan::dry_run(model_, {}, {}, {.ranks = communicator.size(), .shape = shape()})),
        module_(communicator, model_, {}, shape(plan_)),
        optimizer_(module_, {}),
        executor_(module_),
        steps_(module_, executor_, optimizer_, true) {
    for (std::int64_t i = 0; i <= sequence; ++i) tokens_.push_back(static_cast<std::int32_t>(i * i % 61));
    batch_ = {.tokens = {tokens_.data(), {sequence}}, .targets = {tokens_.data() + 1, {sequence}}, .sequences = 1};
    optim::initialize(module_, 1);
  }

  void step() {
    steps_.queue({&batch_, 1}, 1.0f / static_cast<float>(sequence), {.lr = 1e-3}, true);
    optimizer_.control().decision();  // waits with a time limit, as a trainer does
  }
  std::int64_t launched() const { return steps_.launched(); }

 private:
  static RunShape shape(const plan::Plan& plan = {}) {
    return {.size = {.sequence_length = sequence}, .activation_bytes = plan.activation_bytes, .plans = plan.plans};
  }

  Model model_;
  plan::Plan plan_;
  ShardedModel<Model> module_;
  optim::ShardedOptimizer<typename ShardedModel<Model>::Stack> optimizer_;
  Executor<Model> executor_;
  optim::TrainingStep<Model> steps_;
  std::vector<std::int32_t> tokens_;
  TokenBatch batch_;
};

comm::Options limits() { return {.deadline = std::chrono::seconds(5), .device_deadline = std::chrono::seconds(5)}; }

/// Runs steps until the planted failure; returns the program's status.
template <class Comm>
int train(Comm& communicator, std::string_view how) {
  const comm::CatchSignals signals;
  const bool last = communicator.rank() == communicator.size() - 1;
  Training<Comm> training(communicator);
  for (int step = 1;; ++step) {
    training.step();
    if (training.launched() == 1 && last) {
      std::puts("steps are graphs");
      std::fflush(stdout);
    }
    if (const int stop = signals.asked().stop; stop != 0 && communicator.size() == 1) {
      std::fprintf(stderr, "%s: ended after step %d\n", comm::name_of_stop(stop), step);
      return 128 + stop;
    }
    if (step < planted_at || !last) continue;
    if (how == "error") throw Error("planted: rank " + std::to_string(communicator.rank()) + " gives up");
    if (how == "silence") {
      std::this_thread::sleep_for(2 * limits().device_deadline);
      throw Error("planted: a rank was silent, and nobody missed it");
    }
  }
}

#if defined(TESSERA_GPU_NCCL)
/// Runs the ranks as threads, each with a separate GPU.
int run_with_peers(std::string_view how) {
  using Nccl = comm::Nccl<>;
  const comm::nccl::Id id = comm::nccl::make_id(comm::nccl::library());
  return comm::Threads<>::run(2, limits(), [&](auto& host) {
    device::use_cuda_device(host.rank());
    Nccl communicator(comm::nccl::library(), {.rank = host.rank(), .size = host.size(), .id = id}, limits());
    return train(communicator, how);
  });
}
bool has_peers() { return device::cuda_devices() >= 2; }
#else
int run_with_peers(std::string_view) { return 0; }
bool has_peers() { return false; }
#endif

int run(std::string_view how) {
  if (const std::string problem = device::cuda_problem(); !problem.empty()) {
    std::printf("SKIPPED: %s\n", problem.c_str());
    return 0;
  }
  if (has_peers() && how != "signal") return run_with_peers(how);
  if (how == "silence") {
    std::puts("SKIPPED: no device for a second rank, or a build without NCCL");
    return 0;
  }
  using Alone = comm::Threads<Cuda>;
  return Alone::run(1, limits(), [&](Alone& communicator) { return train(communicator, how); });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view how = argc == 2 ? argv[1] : "";
  if (how != "error" && how != "silence" && how != "signal") {
    std::fprintf(stderr, "usage: %s error|silence|signal\n", argv[0]);
    return 2;
  }
  try {
    return run(how);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return comm::exit_status_of(error);
  }
}
