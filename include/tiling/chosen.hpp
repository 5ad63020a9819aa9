// SPDX-License-Identifier: Apache-2.0
/// @file
/// A type-erased tiling policy. Modules take it, so that they compile once for all tilings.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include <tessera/tiling/policies.hpp>

namespace fsdp::tiling {

/// Holds a tiling policy of any type; copies share it. Default: Untiled.
class Chosen {
 public:
  Chosen() = default;
  /// Takes a copy of any policy.
  /// @{
  Chosen(RunTime policy);
  template <class Policy>
  requires(!std::same_as<Policy, Chosen> && Tiling<Policy>) Chosen(Policy policy)
      : policy_(std::make_shared<const Policy>(std::move(policy))), plan_([](const void* held, const Problem& problem) {
          return static_cast<const Policy*>(held)->plan(problem);
        }) {}
  /// @}

  /// Returns the policy's plan.
  TilePlan plan(const Problem& problem) const { return plan_(policy_.get(), problem); }

 private:
  static TilePlan untiled(const void*, const Problem& problem);

  std::shared_ptr<const void> policy_;
  TilePlan (*plan_)(const void*, const Problem&) = untiled;
};

}  // namespace fsdp::tiling
