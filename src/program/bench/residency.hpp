// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera bench residency`: a step of fsdp2, of fsdp2:no-reshard and of fsdp2 within budgets between the two.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <tessera/comm/collectives.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/training/launch.hpp>

#include "../cli/bench_options.hpp"
#include "../cli/strategies.hpp"
#include "lines.hpp"
#include "rounds.hpp"
#include "step.hpp"

namespace fsdp::bench {

/// The steps of several strategies of one stack, on one communicator.
template <class Model>
class ResidencyRuns {
 public:
  using Comm = typename Model::Stack::Comm;

  ResidencyRuns(Comm& communicator, const BenchOptions& options) : communicator_(communicator), options_(options) {}

  StepRun<Model>& add(const std::string& sharding) {
    options_.stack.sharding = cli::parse_sharding(sharding);
    runs_.push_back(std::make_unique<StepRun<Model>>(communicator_, options_, options_.stack.tiling));
    StepRun<Model>& run = *runs_.back();
    cases_.push_back(rounds_.add([&run] { run.step(); }));
    names_.push_back(sharding);
    return run;
  }

  /// Times all steps in turn, and prints a line for each: ratios are to the second one.
  void measure() {
    rounds_.run(options_.repeats, [this] { comm::barrier(communicator_, {"bench"}); });
    comm::reduce(communicator_, rounds_.samples(), comm::Reduction::max, {"bench"});
    if (communicator_.rank() != 0) return;
    for (std::size_t i = 0; i < runs_.size(); ++i)
      Line("residency")
          .add("sharding", names_[i])
          .add("ranks", communicator_.size())
          .add("slot_bytes", runs_[i]->weight_slot_bytes())
          .add("gathered_bytes", runs_[i]->gathered_bytes())
          .add("step_ms", 1e3 * rounds_.median_seconds(cases_[i]))
          .add("time_ratio", rounds_.median_ratio(cases_[i], cases_[1]))
          .print();
  }

 private:
  Comm& communicator_;
  BenchOptions options_;
  Rounds rounds_;
  std::vector<std::unique_ptr<StepRun<Model>>> runs_;
  std::vector<std::size_t> cases_;
  std::vector<std::string> names_;
};

template <class Model>
int measure_residency(const BenchOptions& options) {
  using Comm = typename Model::Stack::Comm;
  (void)cli::known_tiling(options.stack.tiling);
  return train::launch<Comm>(options.launch, [&](Comm& communicator) {
    require<InputError>(communicator.size() > 1,
                        "bench residency: one rank gathers nothing; take --comm threads:2 or more, or mpi");
    ResidencyRuns<Model> runs(communicator, options);
    const std::int64_t least = runs.add("fsdp2").weight_slot_bytes();
    const std::int64_t most = runs.add("fsdp2:no-reshard").weight_slot_bytes();
    constexpr std::int64_t budgets = 4;
    for (std::int64_t i = 0; i < budgets; ++i)
      runs.add(message("fsdp2:budget=", std::max<std::int64_t>(least + (most - least) * i / (budgets - 1), 1)));
    runs.measure();
  });
}

}  // namespace fsdp::bench
