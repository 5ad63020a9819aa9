// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tile plans of a model's modules: a table by kind of module and problem.
///
/// A tiling policy knows the bytes of a module's own tensors. The matmul library takes scratch as well. With many
/// threads it can take more for a tile than for the whole sequence: one copy of a weight gradient per thread. So the
/// table has a dry run of the module alone on Meta, tiled and untiled, and takes the plan with the lower peak.
///
/// A model's dry run adds its modules (tessera/fsdp/nn/plan_of.hpp). Its table goes on to the run, which finds its
/// plans there; plans for other numbers of tokens are made once, on first use. Evaluation has the plan of training, and
/// no batch changes it.
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
struct ModuleDryRun {
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
  TilePlans();
  template <tiling::Tiling Policy>
  explicit TilePlans(const Policy& policy)
      : TilePlans(PlanOf([policy](const tiling::Problem& problem) { return policy.plan(problem); })) {}
  /// @}
  /// One plan for every problem: that of a module's dry run.
  explicit TilePlans(tiling::TilePlan fixed);
  /// Copies, moves and the end are compiled into the library, not by all who make plans.
  /// @{
  TilePlans(const TilePlans&);
  TilePlans(TilePlans&&) noexcept;
  TilePlans& operator=(const TilePlans&);
  TilePlans& operator=(TilePlans&&) noexcept;
  ~TilePlans();
  /// @}

  /// Returns the policy's plan, or Untiled's if that takes fewer bytes. Throws InputError for a policy's plan that
  /// cannot be computed with (tiling::checked), and LogicError if dry runs decide and the module was not added. The
  /// reference stays valid.
  const tiling::TilePlan& plan(ModuleKind kind, const tiling::Problem& problem);

  /// Peak bytes of an evaluation and of training on one and on two micro-batches.
  using Peaks = std::array<std::int64_t, 3>;
  /// Returns the peaks of a single tile of all tokens of `problem`, with `columns` at a time (0: all). Throws as
  /// `plan`.
  const Peaks& tile_peaks(ModuleKind kind, const tiling::Problem& problem, std::int64_t columns);

  /// Whether there is one plan for every problem.
  bool fixed() const { return fixed_.has_value(); }
  /// Returns the module with this problem, or nullptr.
  const ModuleDryRun* find(ModuleKind kind, const tiling::Problem& problem) const;
  /// Adds a module.
  void add(ModuleDryRun module);

 private:
  using PlanOf = std::function<tiling::TilePlan(const tiling::Problem&)>;

  explicit TilePlans(PlanOf policy);
  const ModuleDryRun& module_of(ModuleKind kind, const tiling::Problem& problem) const;

  PlanOf policy_;
  std::optional<tiling::TilePlan> fixed_;
  std::vector<ModuleDryRun> modules_;
  std::map<std::pair<ModuleKind, tiling::Problem>, tiling::TilePlan> plans_;
  std::map<std::tuple<ModuleKind, tiling::Problem, std::int64_t>, Peaks> peaks_;
};

}  // namespace fsdp::nn
