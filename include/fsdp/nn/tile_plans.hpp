// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tile plans of a model's modules: a table by kind of module and problem.
///
/// A tiling policy knows the bytes of a module's own tensors. The matmul library takes scratch as well. With many
/// threads it can take more for a tile than for the whole sequence: one copy of a weight gradient per thread. So the
/// table rehearses a module: it runs it alone on Meta, tiled and untiled, and takes the plan with the lower peak.
///
/// A dry run brings the modules (tessera/fsdp/nn/plan_of.hpp). Its table goes on to the run, which finds its plans
/// there; the plan of another number of tokens is made once, when it is first asked for. Evaluation has the plan of
/// training, and no batch changes it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <typeindex>
#include <utility>
#include <vector>

#include <tessera/tiling/policies.hpp>

namespace fsdp::nn {

/// A kind of module: its type Parameters, which is the same on all devices.
using ModuleKind = std::type_index;

/// A module on Meta that can be run alone, with the number of threads that it is planned for.
struct Rehearsal {
  ModuleKind kind;
  std::function<tiling::Problem(std::int64_t tokens)> problem;
  /// Returns the peak bytes of training on so many micro-batches, whose gradients add up; 0: of an evaluation.
  std::function<std::int64_t(const tiling::TilePlan&, std::int64_t tokens, int micro_batches)> peak;
};

/// The plans that one tiling policy makes for modules with one number of threads. Copies share nothing.
class TilePlans {
 public:
  /// Those of Untiled, or of a policy of any type.
  /// @{
  TilePlans() : TilePlans(tiling::Untiled{}) {}
  template <tiling::Tiling Policy>
  explicit TilePlans(Policy policy)
      : policy_([policy](const tiling::Problem& problem) { return policy.plan(problem); }) {}
  /// @}
  /// The plan of a rehearsal, whatever is asked for.
  explicit TilePlans(tiling::TilePlan rehearsed) : rehearsed_(std::move(rehearsed)) {}

  /// Returns the policy's plan, or Untiled's if that takes fewer bytes. Throws LogicError if a rehearsal decides and no
  /// dry run brought the module. The plan stays where it is.
  const tiling::TilePlan& plan(ModuleKind kind, const tiling::Problem& problem);

  /// Peak bytes of an evaluation and of training on one and on two micro-batches.
  using Peaks = std::array<std::int64_t, 3>;
  /// Returns the peaks of a single tile of all tokens of `problem`, with `columns` at a time (0: all). Throws as
  /// `plan`.
  const Peaks& tile_peaks(ModuleKind kind, const tiling::Problem& problem, std::int64_t columns);

  /// Whether this is the plan of a rehearsal.
  bool rehearses() const { return rehearsed_.has_value(); }
  /// Returns the module with this problem, or nullptr.
  const Rehearsal* find(ModuleKind kind, const tiling::Problem& problem) const;
  /// Brings a module.
  void add(Rehearsal module) { modules_.push_back(std::move(module)); }

 private:
  const Rehearsal& module_of(ModuleKind kind, const tiling::Problem& problem) const;

  std::function<tiling::TilePlan(const tiling::Problem&)> policy_;
  std::optional<tiling::TilePlan> rehearsed_;
  std::vector<Rehearsal> modules_;
  std::map<std::pair<ModuleKind, tiling::Problem>, tiling::TilePlan> plans_;
  std::map<std::tuple<ModuleKind, tiling::Problem, std::int64_t>, Peaks> peaks_;
};

}  // namespace fsdp::nn
