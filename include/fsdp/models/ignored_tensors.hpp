// SPDX-License-Identifier: Apache-2.0
/// @file
/// The optional members of a model that specify which stored tensors it does not use.
///
/// `std::optional<std::string> ignored(name) const` returns the reason if the model ignores a tensor, else nullopt; an
/// empty reason gives no warning. `std::optional<std::string> copied(name) const` returns the parameter that an ignored
/// tensor must be a copy of, or nullopt if it is not a copy.
#pragma once

#include <concepts>
#include <optional>
#include <string>

#include <tessera/fsdp/core/has_member.hpp>

namespace fsdp {

namespace detail {
FSDP_HAS_MEMBER(ignored)
FSDP_HAS_MEMBER(copied)
}  // namespace detail

/// Checks that these members, if declared, have the right types.
template <class M>
consteval bool check_ignored_tensors() {
  static_assert(
      !detail::has_ignored<M>() ||
          requires(const M model, const std::string& name) {
            { model.ignored(name) } -> std::convertible_to<std::optional<std::string>>;
          },
      "fsdp: a model has an ignored that is no std::optional<std::string> ignored(const std::string& name) const, so "
      "that stored tensors which it does not use would be refused");
  static_assert(
      !detail::has_copied<M>() ||
          requires(const M model, const std::string& name) {
            { model.copied(name) } -> std::convertible_to<std::optional<std::string>>;
          },
      "fsdp: a model has a copied that is no std::optional<std::string> copied(const std::string& name) const, so "
      "that a stored copy with other values than its parameter would be taken");
  return true;
}

}  // namespace fsdp
