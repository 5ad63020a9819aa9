// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench generate`: the generation of one token, against one read of the weights that this needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/nn/token_batch.hpp>
#include <tessera/fsdp/optim/initialize.hpp>
#include <tessera/fsdp/training/training.hpp>

#include "../cli/bench_options.hpp"
#include "../cli/strategies.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"
#include "step_floor.hpp"

namespace fsdp::bench {

/// Returns the bytes of the gathered weights that a token reads entirely. This excludes an untied embedding, of which a
/// token reads one row.
template <class Model>
std::int64_t read_weight_bytes(const Model& model) {
  const LlamaConfig& config = model.config();
  const std::int64_t table = config.tied ? 0 : config.vocab_size * config.hidden_size;
  return (parameter_count(model) - table) * std::int64_t{sizeof(typename Model::Stack::Precision::Compute)};
}

/// Returns the line of the last of `tokens` tokens: the slowest rank's times.
template <class Model>
Line measure_generation(train::Evaluation<Model>& evaluation, const std::string& stack, std::int64_t tokens,
                        std::int64_t repeats, int threads) {
  using Compute = typename Model::Stack::Precision::Compute;
  auto& module = evaluation.module();
  auto& communicator = module.communicator();
  optim::initialize(module, 0);
  const std::int64_t vocabulary = module.model().config().vocab_size;
  const std::vector<std::int32_t> text = random_tokens(tokens, vocabulary, 0);
  std::vector<Compute> memory(static_cast<std::size_t>(vocabulary));
  const Tensor<Compute> logits(memory.data(), {1, vocabulary});
  const auto batch = [&](std::int64_t begin, std::int64_t end) {
    return TokenBatch{.tokens = {text.data() + begin, {end - begin}}, .targets = {}, .sequences = 1};
  };
  const auto last = static_cast<std::int32_t>(tokens - 1);
  const std::vector<std::int64_t> row = {last - 1};
  evaluation.executor().logits(batch(0, last), row, logits);

  Reads weights(read_weight_bytes(module.model()), threads);
  Rounds rounds;
  const std::size_t token = rounds.add([&] {
    evaluation.executor().next_logits(batch(last, tokens), {&last, 1}, logits);
  });
  const std::size_t read = rounds.add([&] { weights.run(); });
  rounds.run(repeats, [&] { comm::barrier(communicator, {"bench"}); });
  comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
  const auto cache = static_cast<std::size_t>(device::MemoryKind::cache);
  const double token_ms = 1e3 * rounds.median_seconds(token);
  return Line("generate")
      .add("stack", stack)
      .add("ranks", communicator.size())
      .add("threads", threads)
      .add("parameters", parameter_count(module.model()))
      .add("tokens", tokens)
      .add("weight_bytes", weights.bytes())
      .add("cache_bytes", module.peak_bytes()[cache])
      .add("token_ms", token_ms)
      .add("read_ms", 1e3 * rounds.median_seconds(read))
      .add("ratio", rounds.median_ratio(token, read))
      .add("tokens_per_second", 1e3 / token_ms);
}

/// Measures the last token of a sequence of --seq-len tokens; the others are the prompt.
template <class Model>
int measure_generation(const BenchOptions& options) {
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  static_assert(Executor<Model>::continues);
  const typename Stack::Tiling& tiling = cli::known_tiling(options.stack.tiling);
  return train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const auto sharding = cli::sharding_of<typename Stack::Sharding>(options.stack.sharding);
    const std::int64_t tokens = options.seq_len > 0 ? options.seq_len : 128;
    require<InputError>(tokens > 1, "bench generate: --seq-len 1 leaves no token to begin from; give at least 2");
    const int threads = comm::rank_threads(options.launch.threads, communicator.size());
    const train::StepSize size{
        .sequences = 1, .sequence_length = tokens - 1, .threads = threads, .logit_rows = 1, .cached_rows = tokens};
    train::Evaluation<Model> evaluation(communicator, Model(step_model(options)), size, sharding, tiling,
                                        Purpose::generate);
    const Line line = measure_generation(evaluation, Stack::name(sharding), tokens, options.repeats, threads);
    if (communicator.rank() == 0) line.print();
  });
}

}  // namespace fsdp::bench
