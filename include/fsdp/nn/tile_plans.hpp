// SPDX-License-Identifier: Apache-2.0
/// @file
/// The tile plans of a model's modules: a table by kind of module and problem.
///
/// A tiling policy knows only the bytes of a module's own tensors, but the matmul library allocates scratch as well.
/// With many threads, a tile can need more scratch than the whole sequence: one copy of a weight gradient per thread.
/// The table therefore runs the module alone on Meta, tiled and untiled, and selects the plan with the lower peak.
///
/// A model's dry run adds its modules (tessera/fsdp/nn/plan_of.hpp). Its table is passed to the run, which finds its
/// plans there; plans for other numbers of tokens are computed lazily and stored. Evaluation uses the plan of training,
/// and plans do not depend on the batch.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <typeindex>
#include <utility>
#include <vector>

#include <tessera/tiling/policies.hpp>

namespace fsdp::nn {

/// Identifies a kind of module by its type Parameters, which is the same on all devices.
using ModuleKind = std::type_index;

/// A Meta instance of a module that can be run in isolation, for a fixed number of threads.
struct ModuleDryRun {
  ModuleKind kind;
  std::function<tiling::Problem(std::int64_t tokens)> problem;
  /// Returns the peak bytes of training on `micro_batches` micro-batches with gradient accumulation, or of an
  /// evaluation if `micro_batches` is 0.
  std::function<std::int64_t(const tiling::TilePlan&, std::int64_t tokens, int micro_batches)> peak;
};

/// The plans of one tiling policy for modules with one number of threads. Copies are independent.
class TilePlans {
 public:
  /// Uses the policy Untiled, or a policy of any type.
  /// @{
  TilePlans();
  template <tiling::Tiling Policy>
  explicit TilePlans(const Policy& policy)
      : TilePlans(PlanOf([policy](const tiling::Problem& problem) { return policy.plan(problem); })) {}
  /// @}
  /// Uses one plan for every problem, for the dry run of a module.
  explicit TilePlans(tiling::TilePlan fixed);
  /// Copies, moves and the destructor are compiled into the library, to save compile time in its users.
  /// @{
  TilePlans(const TilePlans&);
  TilePlans(TilePlans&&) noexcept;
  TilePlans& operator=(const TilePlans&);
  TilePlans& operator=(TilePlans&&) noexcept;
  ~TilePlans();
  /// @}

  /// Returns the policy's plan, or Untiled's plan if it needs fewer bytes. Throws InputError for an invalid plan of the
  /// policy (tiling::checked), and LogicError if a dry run is needed and the module was not added. The reference stays
  /// valid.
  const tiling::TilePlan& plan(ModuleKind kind, const tiling::Problem& problem);

  /// Peak bytes of an evaluation and of training on one and on two micro-batches.
  using Peaks = std::array<std::int64_t, 3>;
  /// Returns the peaks of a single tile of all tokens of `problem`, computed in blocks of `columns` columns (0: all at
  /// once). Throws the same errors as `plan`.
  const Peaks& tile_peaks(ModuleKind kind, const tiling::Problem& problem, std::int64_t columns);
  bool fixed() const { return fixed_.has_value(); }  ///< whether one fixed plan is used for every problem
  /// Returns the added module with this problem, or nullptr if there is none.
  const ModuleDryRun* find(ModuleKind kind, const tiling::Problem& problem) const;
  void add(ModuleDryRun module);  ///< adds a module, for dry runs

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

/// Returns a table that several owners share.
std::shared_ptr<TilePlans> shared_plans(TilePlans plans = {});

}  // namespace fsdp::nn
