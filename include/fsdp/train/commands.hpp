// SPDX-License-Identifier: Apache-2.0
/// @file
/// The sub-commands on one compiled stack: train, eval, generate.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/core/hash.hpp>
#include <fsdp/data/corpus.hpp>
#include <fsdp/data/windows.hpp>
#include <fsdp/module/executor.hpp>
#include <fsdp/optim/initialize.hpp>
#include <fsdp/plan/dry_run.hpp>
#include <fsdp/report/report.hpp>
#include <fsdp/train/auto_budget.hpp>
#include <fsdp/train/batches.hpp>
#include <fsdp/train/flags.hpp>
#include <fsdp/train/launch.hpp>
#include <fsdp/train/memory_advice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/sampling.hpp>
#include <fsdp/train/sharding_of.hpp>
#include <fsdp/train/shards_io.hpp>
#include <fsdp/train/trainer.hpp>
#include <fsdp/train/validation.hpp>

namespace fsdp::train {

/// The stack's tiling policy: fixed by its type, or what --tiling says where it is the run-time one.
template <class Tiling>
Tiling tiling_of(const StackChoice& choice) {
  if constexpr (std::is_same_v<Tiling, tiling::RunTime>)
    return policy_of(choice.tiling);
  else
    return {};
}

/// What the type of a tiling policy is called on the command line; a policy of the user's own has no name there.
template <class Tiling>
TilingChoice choice_of(const TilingChoice& asked) {
  if constexpr (std::is_same_v<Tiling, tiling::Untiled>)
    return {};
  else if constexpr (requires { Tiling::tile_count; })
    return {.kind = TilingChoice::Kind::tiles, .number = Tiling::tile_count};
  else if constexpr (requires { Tiling::tokens_per_tile; })
    return {.kind = TilingChoice::Kind::tokens, .number = Tiling::tokens_per_tile};
  else if constexpr (requires { std::integral_constant<std::int64_t, Tiling::bytes>{}; })
    return {.kind = TilingChoice::Kind::budget, .number = Tiling::bytes};
  else
    return asked;
}

/// The stack of a program that has one: numbers as asked for, kinds from the types.
template <class Stack>
StackChoice choice_of(const StackChoice& asked) {
  StackChoice fixed = asked;
  if (!takes<typename Stack::Sharding>(asked.sharding)) fixed.sharding = usual_choice<typename Stack::Sharding>();
  fixed.precision = parse_precision(Stack::Precision::name);
  fixed.tiling = choice_of<typename Stack::Tiling>(asked.tiling);
  const std::string comm(Stack::Comm::name);
  if (name_of(asked.comm).substr(0, comm.size()) != comm)
    fixed.comm = parse_comm(comm == "threads" ? "threads:1" : comm);
  return fixed;
}

/// Ranks of a dry run: --ranks, or those that --comm or the launcher would start.
int dry_run_ranks(const TrainOptions& options);

/// Prints what a step would hold on each rank, or its schedule; nothing is allocated.
template <class Model>
void describe(const TrainOptions& options) {
  using Tiling = typename Model::Stack::Tiling;
  const auto sharding = sharding_of<typename Model::Stack::Sharding>(options.stack.sharding);
  const Model model(resolve_model(options), options.units);
  const int ranks = dry_run_ranks(options);
  validate(options, ranks);
  const int threads = static_cast<int>(
      threads_per_rank(options.stack.threads, device::available_cores(), ranks_on_this_machine(ranks)));
  const plan::Request request = plan_request(options, ranks, threads);
  if (options.print_schedule) {
    using MetaModel = plan::MetaTwin<Model>;
    typename MetaModel::Stack::Comm communicator({.ranks = ranks, .rank = 0});
    const ShardedModule<MetaModel> module(communicator, MetaModel(model.config(), model.units()), sharding, Tiling{},
                                          request.shape);
    std::fputs(report::schedule_text(module.schedule(sharding::Pass::train), module.names())
                   .c_str(),
               stdout);
  }
  if (options.dry_run) {
    TrainOptions resolved = options;
    if (has_auto_budget(options)) {
      const std::int64_t memory = memory_of_rank<typename Model::Stack::Comm>(options, ranks);
      resolved = with_budget<Model>(options, ranks, threads, memory);
      print_budget(resolved, memory);
    }
    const Tiling tiling = tiling_of<Tiling>(resolved.stack);
    const plan::Plan step = plan::dry_run(model, sharding, tiling, request);
    std::fputs(plan::tiling_text(model, tiling, request).c_str(), stdout);
    const std::string whose =
        step.same_on_all_ranks ? "each rank" : message("rank ", step.rank, ", which takes the most");
    std::fputs(report::memory_table(
                   step.bytes, message(Model::Stack::name(sharding), ", ", ranks, " ranks, ", request.sequences, " x ",
                                       options.seq_len, " tokens a micro-batch: bytes of ", whose))
                   .c_str(),
               stdout);
  }
}

template <class Model>
int train(const TrainOptions& options) {
  using Comm = typename Model::Stack::Comm;
  if (options.dry_run || options.print_schedule) {
    describe<Model>(options);
    return 0;
  }
  return launch<Comm>(options.stack, [&options](Comm& communicator) {
    agree_on_arguments(communicator, cli::to_toml(options));
    validate(options, communicator.size());
    using Stack = typename Model::Stack;
    const TrainOptions resolved = with_budget<Model>(communicator, options);
    try {
      Trainer<Model>(communicator, resolved, sharding_of<typename Stack::Sharding>(resolved.stack.sharding),
                     tiling_of<typename Stack::Tiling>(resolved.stack))
          .run();
    } catch (const MemoryError& error) {
      throw MemoryError(error.what() + memory_advice<Model>(resolved, communicator.size(),
                                                            rank_threads(resolved.stack, communicator)));
    }
  });
}

/// A module for forward passes alone, with the weights of a folder.
template <class Model>
struct LoadedModule {
  using Stack = typename Model::Stack;

  LoadedModule(typename Stack::Comm& communicator, const std::string& folder, const StackChoice& stack,
               std::int64_t sequences, std::int64_t sequence_length, Purpose purpose)
      : files(checkpoint::open_model(folder,
                                     [&](const std::string& text) {
                                       if (communicator.rank() == 0)
                                         std::fprintf(stderr, "tessera: warning: %s\n", text.c_str());
                                     })),
        model(files.config),
        module(communicator, model, sharding_of<typename Stack::Sharding>(stack.sharding),
               tiling_of<typename Stack::Tiling>(stack),
               planned(communicator, stack, sequences, sequence_length, purpose), purpose),
        executor(module) {
    load_weights(module, files.weights);
  }

  checkpoint::ModelFiles files;
  Model model;
  ShardedModule<Model> module;
  Executor<Model> executor;

 private:
  RunShape planned(typename Stack::Comm& communicator, const StackChoice& stack, std::int64_t sequences,
                   std::int64_t sequence_length, Purpose purpose) const {
    plan::Request request{.ranks = communicator.size(),
                          .rank = communicator.rank(),
                          .sequences = sequences,
                          .shape = {.sequence_length = sequence_length, .threads = rank_threads(stack, communicator)},
                          .purpose = purpose};
    request.shape.activation_bytes = plan::dry_run(model, sharding_of<typename Stack::Sharding>(stack.sharding),
                                                   tiling_of<typename Stack::Tiling>(stack), request)
                                         .activation_bytes;
    return request.shape;
  }
};

/// Prints {"loss": mean nats per token, "tokens": ...} over the consecutive windows of the data.
template <class Model>
int evaluate(const EvalOptions& options) {
  using Comm = typename Model::Stack::Comm;
  validate(options);
  return launch<Comm>(options.stack, [&options](Comm& communicator) {
    agree_on_arguments(communicator, cli::to_toml(options));
    const data::Corpus corpus(std::vector<std::filesystem::path>(options.data.begin(), options.data.end()));
    require_positions(read_llama_config(options.model), options.seq_len, options.model);
    const std::int64_t sequences = std::max<std::int64_t>(1, options.batch_size / communicator.size());
    LoadedModule<Model> loaded(communicator, options.model, options.stack, sequences, options.seq_len,
                               Purpose::evaluate);
    const data::Windows windows(corpus, options.seq_len, 0.0, loaded.model.config().vocab_size);
    Batches batches(windows, sequences, 1, options.document_separator, device::host_memory<typename Comm::Device>);
    CountExchange<Comm> exchange(communicator, loaded.module.ledger());
    const MeanLoss mean = mean_loss(loaded.executor, communicator, exchange, batches, sequences,
                                    data::evenly_spread(0, windows.count(), options.windows));
    require<Error>(std::isfinite(mean.loss), "the mean loss is ", std::abs(mean.loss),
                   "; look at the weights of --model ", options.model);
    if (communicator.rank() == 0) std::printf("%s\n", report::mean_loss_json(mean.loss, mean.tokens).c_str());
  });
}

/// Prints the prompt and the bytes that follow it. All ranks compute the same; rank 0 prints.
template <class Model>
int generate(const GenerateOptions& options) {
  using Comm = typename Model::Stack::Comm;
  using Compute = typename Model::Stack::Precision::Compute;
  validate(options);
  return launch<Comm>(options.stack, [&options](Comm& communicator) {
    agree_on_arguments(communicator, cli::to_toml(options));
    // Bytes that each new one may look back at.
    const std::int64_t context = std::min<std::int64_t>(256, read_llama_config(options.model).max_position_embeddings);
    LoadedModule<Model> loaded(communicator, options.model, options.stack, 1, context, Purpose::generate);
    const std::int64_t vocabulary = loaded.model.config().vocab_size;
    const auto known = static_cast<std::size_t>(std::min<std::int64_t>(vocabulary, 256));  // tokens that are bytes
    for (const char c : options.prompt)
      require<InputError>(static_cast<unsigned char>(c) < known, "--prompt holds byte ",
                          static_cast<int>(static_cast<unsigned char>(c)),
                          ", which is not below the model's vocabulary of ", vocabulary);
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(context));
    std::vector<Compute> memory(static_cast<std::size_t>(context * vocabulary));
    const Tensor<Compute> logits(memory.data(), {context, vocabulary});
    std::string text = options.prompt;
    const auto print = [&](std::size_t from) {
      if (communicator.rank() != 0) return;
      std::fwrite(text.data() + from, 1, text.size() - from, stdout);
      std::fflush(stdout);
    };
    print(0);
    for (std::int64_t i = 0; i < options.tokens; ++i) {
      const std::size_t used = std::min(text.size(), tokens.size());
      std::transform(text.end() - static_cast<std::ptrdiff_t>(used), text.end(), tokens.begin(),
                     [](char c) { return static_cast<std::int32_t>(static_cast<unsigned char>(c)); });
      loaded.executor.logits(Tensor<const std::int32_t>(tokens.data(), {context}), logits);
      const Compute* const last = logits.row(static_cast<std::int64_t>(used) - 1);
      const double uniform =
          static_cast<double>(mixed(options.seed ^ mixed(static_cast<std::uint64_t>(i))) >> 11) * 0x1p-53;
      text.push_back(static_cast<char>(sample(std::span<const Compute>(last, known), options.temperature, uniform)));
      print(text.size() - 1);
    }
    if (communicator.rank() == 0) std::printf("\n");
  });
}

}  // namespace fsdp::train
