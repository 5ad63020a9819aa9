// SPDX-License-Identifier: Apache-2.0
/// @file
/// The training configurations that `tessera plan --fit` tries: all choices that the flags leave open and that do not
/// change results, except for the order of summation.
///
/// A family is a strategy, a number of ranks per sequence, and a number of micro-batches. Its knobs are tiles,
/// recomputation with inputs in device or host memory, and the placement of the optimizer. To add a knob: a list in
/// FitFamily, and its lines in FitSpace::levels_of and FitSpace::train.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/plan/cluster.hpp>
#include <tessera/fsdp/plan/search.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

#include "commands.hpp"

namespace fsdp::cli {

/// How blocks save their inputs for backward.
struct Kept {
  bool recompute = false;
  double offload_inputs = 0;  ///< fraction of the recomputed blocks' inputs in host memory
};

/// A strategy with a number of ranks per sequence and a number of micro-batches, and the levels of each knob, fastest
/// first.
struct FitFamily {
  Train train = {};
  std::vector<tiling::RunTimeTiling> tilings = {};
  std::vector<Kept> kept = {};
  std::vector<OffloadChoice> offloads = {};
  std::optional<std::size_t> after = {};  ///< see plan::Family::after
};

/// The configurations that a command's flags leave open on a cluster.
class FitSpace {
 public:
  /// `flags`: values given on the command line or in its file stay fixed.
  FitSpace(const Train& asked, const train::FlagSet& flags, const plan::Cluster& cluster);

  std::vector<plan::Family> families() const;
  /// Returns the number of configurations.
  std::int64_t size() const;
  /// Returns the command with the choices of a configuration.
  Train train(std::size_t family, const plan::Turned& turned) const;
  /// Returns variants of a configuration that handle gathered weights differently: reductions after the last
  /// micro-batch, prefetching of one more unit, or gathered weights in all remaining memory.
  std::vector<Train> beside(const Train& train) const;
  /// Returns the flags of a family's strategy, or of a configuration: "--sharding fsdp2 --grad-accum 2".
  std::string strategy(std::size_t family) const;
  std::string flags(const Train& train) const;

 private:
  void add_families(const ShardingChoice& sharding);
  FitFamily family(const ShardingChoice& sharding, std::int64_t sharing, std::int64_t micro_batches) const;
  std::vector<OffloadChoice> offloads() const;
  std::vector<ShardingChoice> shardings() const;
  std::map<std::int64_t, std::int64_t> sharing_of_micro_batches() const;
  std::vector<std::int64_t> sharings() const;
  std::vector<std::int64_t> micro_batches(std::int64_t sharing) const;
  std::vector<tiling::RunTimeTiling> tilings(std::int64_t tokens) const;
  std::vector<Kept> kept() const;

  Train asked_;
  const train::FlagSet& given_;
  plan::Cluster cluster_;
  std::vector<FitFamily> families_;
};

/// A flag and its value.
struct WayFlag {
  std::string name;  ///< name without dashes
  std::string value;
};
using WayFlags = std::vector<WayFlag>;

/// Returns the flags of a configuration; all other flags that --fit could choose have their defaults.
WayFlags flags_of_way(Train train);
/// Returns the flags as text for a command line: "--sharding fsdp2 --grad-accum 2 --recompute".
std::string command_line(const WayFlags& flags);

}  // namespace fsdp::cli
