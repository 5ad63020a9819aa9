// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench load`: loading a folder's weights into the shards of all ranks, against reading its files.
#pragma once

#include <filesystem>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/training/training.hpp>
#include <tessera/trainer/run/commands.hpp>

#include "../cli/bench_options.hpp"
#include "../cli/strategies.hpp"
#include "floors.hpp"
#include "lines.hpp"
#include "rounds.hpp"
#include "step_floor.hpp"

namespace fsdp::bench {

/// Measures the loading of --model's weights. Before every round the files are dropped from the system's cache, if the
/// system can do that.
template <class Model>
int measure_loading(const BenchOptions& options) {
  using Stack = typename Model::Stack;
  using Comm = typename Stack::Comm;
  const typename Stack::Tiling& tiling = cli::known_tiling(options.stack.tiling);
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
    const std::size_t load =
        rounds.add([&] { train::load<Model>(communicator, options.launch, evaluation.module(), options.model); }, drop);
    const std::size_t read = rounds.add([&] { reads.run(); }, drop);
    rounds.run(options.repeats, [&] { comm::barrier(communicator, {"bench"}); });
    comm::reduce(communicator, rounds.samples(), comm::Reduction::max, {"bench"});
    if (communicator.rank() != 0) return;
    const double load_ms = 1e3 * rounds.median_seconds(load);
    Line("load")
        .add("stack", Stack::name(sharding))
        .add("ranks", communicator.size())
        .add("files", paths.size())
        .add("bytes", reads.all_bytes())
        .add("load_ms", load_ms)
        .add("read_ms", 1e3 * rounds.median_seconds(read))
        .add("ratio", rounds.median_ratio(read, load))
        .add("gb_per_second", static_cast<double>(reads.all_bytes()) / load_ms * 1e-6)
        .print();
  });
}

}  // namespace fsdp::bench
