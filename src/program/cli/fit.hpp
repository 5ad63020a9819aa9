// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan --fit`: searches for the fastest training configurations that fit on a cluster, by their plans. Tries
/// all choices that the flags leave open and that do not change results, except for the order of summation.
///
/// A family is a strategy, a number of ranks per sequence, and a number of micro-batches. Its knobs are tiles,
/// recomputation with inputs in device or host memory, and the placement of the optimizer. To add a knob: a list in
/// FitSpace, and its lines in the constructor and in FitSpace::train.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/search.hpp>
#include <tessera/trainer/flags/flag_set.hpp>
#include <tessera/trainer/run/estimate.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// How blocks save their inputs for backward.
struct Kept {
  bool recompute = false;
  double offload_inputs = 0;  ///< fraction of the recomputed blocks' inputs in host memory
};

/// The configurations that a command's flags leave open on a cluster.
class FitSpace {
 public:
  /// `flags`: values given on the command line or in its file stay fixed.
  FitSpace(const Train& asked, const train::FlagSet& flags, const plan::Cluster& cluster);

  const std::vector<plan::Family>& families() const { return families_; }
  std::int64_t size() const;  ///< the number of configurations
  /// Returns the command with the choices of a configuration.
  Train train(std::size_t family, const plan::Turned& turned) const;
  /// Returns variants of a configuration that handle gathered weights differently: reductions after the last
  /// micro-batch, prefetching of one more unit, gathered weights in all remaining memory, or the embedding and the head
  /// whole on every rank.
  std::vector<Train> beside(const Train& train) const;
  /// Returns the flags of a family's strategy, or of a configuration: "--sharding fsdp2 --grad-accum 2".
  std::string strategy(std::size_t family) const;
  std::string flags(const Train& train) const;

 private:
  /// A family: the command with its choices, and the tilings to try.
  struct Start {
    Train train = {};
    std::vector<tiling::RunTimeTiling> tilings = {};
  };

  const train::FlagSet& given_;
  std::vector<Kept> kept_;
  std::vector<OffloadChoice> offloads_;
  std::vector<Start> starts_;  // [families]
  std::vector<plan::Family> families_;
};

/// Flags by name without dashes, with their values.
using ConfigurationFlags = std::vector<std::pair<std::string, std::string>>;

/// Returns the flags of a configuration; all other flags that --fit could choose have their defaults.
ConfigurationFlags flags_of_configuration(Train train);
/// Returns the flags as text for a command line: "--sharding fsdp2 --grad-accum 2 --recompute".
std::string command_line(const ConfigurationFlags& flags);

/// Estimates the step of a command with other choices. Throws InputError for an invalid combination of choices.
using EstimateStep = FunctionRef<train::EstimatedStep(const Train&)>;

/// Prints the three fastest configurations that fit, with their flags, and the reason why other strategies are slower
/// or do not fit. `missing`: the reason why this program cannot run them; empty if it can. Returns the exit status.
/// Throws InputError if nothing fits; the error reports the memory that would be needed.
int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const std::string& missing, EstimateStep estimate);

}  // namespace fsdp::cli
