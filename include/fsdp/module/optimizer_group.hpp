// SPDX-License-Identifier: Apache-2.0
/// @file
/// Groups of parameters that an optimizer steps in their own way: another learning rate or weight decay, clipped apart
/// from the rest, or frozen. Not to be confused with the groups that are gathered and reduced together.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/fsdp/core/parameter.hpp>

namespace fsdp {

/// The parameters that match all of `parameters`, `units` and `role`, and what is done otherwise with them. Patterns
/// match whole names, with *, ? and [...] as in a shell. A parameter may be in several groups that set different
/// things, or the same learning rate or weight decay; one group at most clips it.
struct OptimizerGroup {
  std::string parameters = "*";   ///< pattern of their names
  std::string units = "*";        ///< pattern of the names of units that have them
  std::optional<Role> role = {};  ///< nothing: of any role
  std::optional<double> lr = {};  ///< factor of the learning rate
  /// In place of the optimizer's constant, also for parameters that do not decay without it.
  std::optional<double> weight_decay = {};
  /// The largest norm of the group's gradients, which the norm of the rest then leaves out; 0: not clipped at all.
  std::optional<double> clip = {};
  bool frozen = false;  ///< not trained, as UnitOptions::frozen

  /// Which parameters it has, for messages: "'*.bias'", "'*' of units 'block 0'", "'*' of role vector".
  std::string selection() const;
  /// Throws InputError for a number out of its range, for a group that sets nothing, and for numbers of a frozen one.
  void check() const;

  friend bool operator==(const OptimizerGroup&, const OptimizerGroup&) = default;
};

/// A number that a group may set. The least one is 0.
struct GroupNumber {
  std::string_view name;  ///< in messages and flags
  std::optional<double> OptimizerGroup::*value;
  double most;
};
/// All of them.
inline constexpr std::array<GroupNumber, 3> group_numbers{{{"lr", &OptimizerGroup::lr, 1000},
                                                           {"weight-decay", &OptimizerGroup::weight_decay, 1000},
                                                           {"clip", &OptimizerGroup::clip, 1e30}}};

/// Returns "matrix", "table" or "vector".
std::string name_of(Role role);

}  // namespace fsdp

// Compiled into the library.
extern template class std::vector<fsdp::OptimizerGroup>;
