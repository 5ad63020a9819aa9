// SPDX-License-Identifier: Apache-2.0
/// @file
/// `residency`, `generate` and `load`, and the list of a backend's stacks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/fsdp/execution/instances.hpp>
#include <tessera/fsdp/models/llama.hpp>
#include <tessera/fsdp/nn/instances.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/optim/initialize.hpp>
#include <tessera/fsdp/sequence/ulysses.hpp>
#include <tessera/fsdp/training/launch.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/run/inference_of.hpp>

#include "../src/program/cli/stack_choice.hpp"
#include "backends.hpp"
#include "bounds.hpp"
#include "comm.hpp"
#include "lines.hpp"
#include "step.hpp"

namespace fsdp::bench {

/// Alternating steps of fsdp2, of fsdp2:no-reshard, and of fsdp2 with memory budgets between the two. Ratios are
/// relative to fsdp2:no-reshard.
template <class Model>
int measure_residency(const BenchOptions& options) {
  using Comm = typename Model::Stack::Comm;
  (void)cli::known_tiling(options.stack.tiling);
  return train::launch<Comm>(options.launch, [&](Comm& communicator) {
    require<InputError>(communicator.size() > 1,
                        "bench residency: one rank gathers nothing; take --comm threads:2 or more, or mpi");
    BenchOptions each = options;
    Rounds rounds;
    std::vector<std::unique_ptr<StepRun<Model>>> runs;
    std::vector<std::string> names;
    const auto add = [&](const std::string& sharding) -> std::int64_t {
      each.stack.sharding = cli::parse_sharding(sharding);
      names.push_back(sharding);
      runs.push_back(std::make_unique<StepRun<Model>>(communicator, each, each.stack.tiling));
      rounds.add([&run = *runs.back()] { run.step(); });
      return runs.back()->weight_slot_bytes();
    };
    const std::int64_t least = add("fsdp2"), most = add("fsdp2:no-reshard");
    constexpr std::int64_t budgets = 4;
    for (std::int64_t i = 0; i < budgets; ++i)
      add(message("fsdp2:budget=", std::max<std::int64_t>(least + (most - least) * i / (budgets - 1), 1)));
    run_rounds(communicator, rounds, options.repeats);
    if (communicator.rank() != 0) return;
    for (std::size_t i = 0; i < runs.size(); ++i)
      Line("residency")
          .add("sharding", names[i], "ranks", communicator.size(), "slot_bytes", runs[i]->weight_slot_bytes())
          .add("gathered_bytes", runs[i]->gathered_bytes(), "step_ms", 1e3 * rounds.median_seconds(i))
          .add("time_ratio", rounds.median_ratio(i, 1))
          .print();
  });
}

/// Generates the last token of a sequence of --seq-len tokens, whose other tokens are the prompt. Compared with one
/// read of the weights.
template <class Model>
int measure_generation(const BenchOptions& options) {
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  using Compute = typename Stack::Precision::Compute;
  static_assert(Executor<Model>::continues);
  const auto& tiling = cli::known_tiling(options.stack.tiling);
  return train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const auto sharding = cli::sharding_of<typename Stack::Sharding>(options.stack.sharding);
    const std::int64_t tokens = options.seq_len > 0 ? options.seq_len : 128;
    require<InputError>(tokens > 1, "bench generate: --seq-len 1 leaves no token to begin from; give at least 2");
    const int threads = comm::rank_threads(options.launch.threads, communicator.size());
    train::Evaluation<Model> evaluation(
        communicator, Model(step_model(options)),
        {.sequences = 1, .sequence_length = tokens - 1, .threads = threads, .logit_rows = 1, .cached_rows = tokens},
        sharding, tiling, Purpose::generate);
    auto& module = evaluation.module();
    optim::initialize(module, 0);
    const LlamaConfig& config = module.model().config();
    const std::vector<std::int32_t> text = random_tokens(tokens, config.vocab_size, 0);
    std::vector<Compute> memory(static_cast<std::size_t>(config.vocab_size));
    const Tensor<Compute> logits(memory.data(), {1, config.vocab_size});
    const auto batch = [&](std::int64_t begin, std::int64_t end) {
      return TokenBatch{.tokens = {text.data() + begin, {end - begin}}, .targets = {}, .sequences = 1};
    };
    const auto last = static_cast<std::int32_t>(tokens - 1);
    const std::vector<std::int64_t> row = {last - 1};
    evaluation.executor().logits(batch(0, last), row, logits);

    // Generating a token reads one row of an untied embedding, and all other weights.
    const std::int64_t table = config.tied ? 0 : config.vocab_size * config.hidden_size;
    Reads weights((parameter_count(module.model()) - table) * std::int64_t{sizeof(Compute)}, threads);
    Rounds rounds;
    rounds.add([&] { evaluation.executor().next_logits(batch(last, tokens), {&last, 1}, logits); });
    rounds.add([&] { weights.run(); });
    run_rounds(communicator, rounds, options.repeats);
    if (communicator.rank() != 0) return;
    const double token_ms = 1e3 * rounds.median_seconds(0);
    Line("generate")
        .add("stack", Stack::name(sharding), "ranks", communicator.size(), "threads", threads)
        .add("parameters", parameter_count(module.model()), "tokens", tokens, "weight_bytes", weights.bytes())
        .add("cache_bytes", module.peak_bytes()[static_cast<std::size_t>(device::MemoryKind::cache)])
        .add("token_ms", token_ms, "read_ms", 1e3 * rounds.median_seconds(1), "ratio", rounds.median_ratio(0, 1))
        .add("tokens_per_second", 1e3 / token_ms)
        .print();
  });
}

/// Loads --model's weights into the shards of all ranks, compared with reading its files. Before every round the files
/// are dropped from the system's page cache if the system supports that.
template <class Model>
int measure_loading(const BenchOptions& options) {
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  const auto& tiling = cli::known_tiling(options.stack.tiling);
  require<InputError>(!options.model.empty(), "bench load: --model is missing; give a folder with weights");
  return train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const auto sharding = cli::sharding_of<typename Stack::Sharding>(options.stack.sharding);
    const int threads = comm::rank_threads(options.launch.threads, communicator.size());
    train::Evaluation<Model> evaluation(communicator, Model(step_model(options)),
                                        {.sequences = 1, .sequence_length = 8, .threads = threads}, sharding, tiling);
    std::vector<std::filesystem::path> paths;
    const auto weights = checkpoint::WeightFiles::open(options.model);
    for (const auto& file : weights.files()) paths.push_back(file.path());
    FileReads reads(paths, communicator.rank(), communicator.size());
    const auto drop = [&] {
      reads.drop_from_cache();
      comm::barrier(communicator, {"bench"});
    };
    Rounds rounds;
    rounds.add([&] { train::load<Model>(communicator, options.launch, evaluation.module(), options.model); }, drop);
    rounds.add([&] { reads.run(); }, drop);
    run_rounds(communicator, rounds, options.repeats);
    if (communicator.rank() != 0) return;
    const double load_ms = 1e3 * rounds.median_seconds(0);
    Line("load")
        .add("stack", Stack::name(sharding), "ranks", communicator.size(), "files", paths.size())
        .add("bytes", reads.all_bytes(), "load_ms", load_ms, "read_ms", 1e3 * rounds.median_seconds(1))
        .add("ratio", rounds.median_ratio(1, 0))
        .add("gb_per_second", static_cast<double>(reads.all_bytes()) / load_ms * 1e-6)
        .print();
  });
}

template <class Sharding, class Comm, class PrecisionT>
void add_stack(std::vector<StackBenches>& list, cli::PrecisionChoice precision) {
  using Model = Llama<Stack<Sharding, Comm, PrecisionT, tiling::RunTimeTiling, Ulysses>>;
  StackBenches& stack = list.emplace_back(StackBenches{.takes = cli::takes<Sharding>,
                                                       .precision = precision,
                                                       .step = measure_step<Model>,
                                                       .generate = measure_generation<Model>,
                                                       .load = measure_loading<Model>});
  if constexpr (std::is_same_v<Sharding, RunTimeAny>) stack.residency = measure_residency<Model>;
}

/// Compiles the benches for every strategy and two precisions on a communicator.
template <class Comm>
Backend backend_on() {
  Backend backend{.comm = policy_text<Comm>(),
                  .stacks = {},
                  .measure_comm = measure_comm<Comm>,
                  .fail = [](const std::exception_ptr& error) {
                    return train::launch<Comm>({}, [&](Comm&) { std::rethrow_exception(error); });
                  }};
  add_stack<RunTimeAny, Comm, Bf16Mixed>(backend.stacks, cli::PrecisionChoice::bf16);
  add_stack<RunTimeAny, Comm, Fp32>(backend.stacks, cli::PrecisionChoice::fp32);
  add_stack<RunTimeHybridFull, Comm, Bf16Mixed>(backend.stacks, cli::PrecisionChoice::bf16);
  add_stack<RunTimeHybridFull, Comm, Fp32>(backend.stacks, cli::PrecisionChoice::fp32);
  return backend;
}

}  // namespace fsdp::bench
