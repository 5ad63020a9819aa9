// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ways to train that `tessera plan --fit` tries: all that the flags leave open and that changes no result but for
/// the order of sums.
///
/// A family is a strategy, how many ranks share a sequence, and how many micro-batches there are; its knobs are tiles,
/// recomputation with its inputs here or in host memory, and the optimizer's place. To add a knob: a list in FitFamily,
/// and its lines in FitSpace::levels_of and FitSpace::train.
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

/// How blocks keep what their backward needs.
struct Kept {
  bool recompute = false;
  double offload_inputs = 0;  ///< share of the recomputed blocks' inputs in host memory
};

/// A strategy, a way of sharing sequences and a number of micro-batches, and the levels of each knob, the fastest
/// first.
struct FitFamily {
  Train train = {};
  std::vector<tiling::RunTimeTiling> tilings = {};
  std::vector<Kept> kept = {};
  std::vector<OffloadChoice> offloads = {};
  std::optional<std::size_t> after = {};  ///< as plan::Family has it
};

/// The ways that a command's flags leave open on a cluster.
class FitSpace {
 public:
  /// `flags`: what the command line and its file gave stays as it is.
  FitSpace(const Train& asked, const train::FlagSet& flags, const plan::Cluster& cluster);

  std::vector<plan::Family> families() const;
  /// Number of ways.
  std::int64_t size() const;
  /// Returns the command with a way's choices.
  Train train(std::size_t family, const plan::Turned& turned) const;
  /// Returns ways beside one that hold gathered weights differently: reductions after the last micro-batch, a unit more
  /// gathered ahead, memory that is left filled with gathered weights.
  std::vector<Train> beside(const Train& train) const;
  /// Returns the flags of a family's strategy, or of a way: "--sharding fsdp2 --grad-accum 2".
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
  std::string name;  ///< without dashes
  std::string value;
};
using WayFlags = std::vector<WayFlag>;

/// Returns the flags of a way; others that --fit could choose have their defaults.
WayFlags flags_of_way(Train train);
/// Returns them as a command line has them: "--sharding fsdp2 --grad-accum 2 --recompute".
std::string command_line(const WayFlags& flags);

}  // namespace fsdp::cli
