// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/nn/tile_plans.hpp>

#include <algorithm>
#include <cstddef>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/tiling/problem.hpp>

namespace fsdp::nn {

TilePlans::TilePlans() : TilePlans(tiling::Untiled{}) {}
TilePlans::TilePlans(tiling::TilePlan fixed) : fixed_(std::move(fixed)) {}
TilePlans::TilePlans(PlanOf policy) : policy_(std::move(policy)) {}
TilePlans::TilePlans(const TilePlans&) = default;
TilePlans::TilePlans(TilePlans&&) noexcept = default;
TilePlans& TilePlans::operator=(const TilePlans&) = default;
TilePlans& TilePlans::operator=(TilePlans&&) noexcept = default;
TilePlans::~TilePlans() = default;

std::shared_ptr<TilePlans> shared_plans(TilePlans plans) { return std::make_shared<TilePlans>(std::move(plans)); }

void TilePlans::add(ModuleDryRun module) { modules_.push_back(std::move(module)); }

const tiling::TilePlan& TilePlans::plan(ModuleKind kind, const tiling::Problem& problem) {
  if (fixed_) return *fixed_;
  if (const auto known = plans_.find({kind, problem}); known != plans_.end()) return known->second;
  tiling::TilePlan plan = tiling::checked(problem, policy_(problem)), untiled = tiling::Untiled{}.plan(problem);
  if (plan != untiled) {
    const ModuleDryRun& module = module_of(kind, problem);
    const auto peak = [&](const tiling::TilePlan& each) {  // includes the kept bytes of the other units
      return module.peak(each, problem.tokens, 1) + (each.repeats - 1) * each.kept_bytes;
    };
    if (peak(plan) > peak(untiled)) plan = std::move(untiled);
  }
  return plans_.emplace(std::pair(kind, problem), std::move(plan)).first->second;
}

const TilePlans::Peaks& TilePlans::tile_peaks(ModuleKind kind, const tiling::Problem& problem, std::int64_t columns) {
  const std::tuple key(kind, problem, columns);
  if (const auto known = peaks_.find(key); known != peaks_.end()) return known->second;
  const ModuleDryRun& module = module_of(kind, problem);
  const tiling::TilePlan plan{.tiles = {{.begin = 0, .end = problem.tokens}}, .columns_per_block = columns};
  Peaks peaks{};
  for (std::size_t i = 0; i < peaks.size(); ++i) peaks[i] = module.peak(plan, problem.tokens, static_cast<int>(i));
  return peaks_.emplace(key, peaks).first->second;
}

const ModuleDryRun* TilePlans::find(ModuleKind kind, const tiling::Problem& problem) const {
  const auto found = std::find_if(modules_.begin(), modules_.end(), [&](const ModuleDryRun& module) {
    return module.kind == kind && module.problem(problem.tokens) == problem;
  });
  return found == modules_.end() ? nullptr : &*found;
}

const ModuleDryRun& TilePlans::module_of(ModuleKind kind, const tiling::Problem& problem) const {
  const ModuleDryRun* const module = find(kind, problem);
  require<LogicError>(module != nullptr, "tiling: the tiles of a module are asked for, for ", problem.tokens,
                      " tokens, and no dry run had this module; give the context the plans of a dry run "
                      "(RunShape::plans, nn::add_dry_run)");
  return *module;
}

}  // namespace fsdp::nn
