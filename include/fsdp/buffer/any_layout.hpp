// SPDX-License-Identifier: Apache-2.0
/// @file
/// A layout policy that is chosen at run time.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <tessera/fsdp/buffer/layout.hpp>
#include <tessera/fsdp/buffer/owned.hpp>
#include <tessera/fsdp/buffer/rows.hpp>

namespace fsdp::buffer {

/// Contains one of this library's layout policies, with its parameters.
class AnyLayout {
 public:
  static constexpr std::string_view name = "any";

  AnyLayout() = default;
  /// Takes a copy of `policy`.
  template <class L>
  requires(std::constructible_from<std::variant<PerParameter, Flat, Rows, Owned>, L>&& LayoutPolicy<L>)
      AnyLayout(L policy)
      : policy_(std::move(policy)) {}

  /// Returns the name of the contained policy.
  std::string text() const {
    return std::visit([]<class L>(const L&) { return std::string(L::name); }, policy_);
  }
  std::vector<Layout> build(std::span<const TensorGroup> groups, int parts) const {
    return std::visit([&](const auto& policy) { return policy.build(groups, parts); }, policy_);
  }

 private:
  std::variant<PerParameter, Flat, Rows, Owned> policy_;
};

static_assert(LayoutPolicy<AnyLayout> && !keeps_tensors_whole<AnyLayout>);

}  // namespace fsdp::buffer
