// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which parameters of units each OptimizerGroup has, and what the groups of a parameter set together.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// The groups' values for each parameter, by name. The groups must outlive it.
class SetByGroups {
 public:
  /// Throws InputError for a group that matches no parameter, sets nothing, is listed twice or has a value out of its
  /// range, and for groups that give a parameter different values.
  SetByGroups(std::span<const Unit> units, const std::vector<OptimizerGroup>& groups);

  /// Whether a group freezes the parameter.
  bool freezes(const std::string& name) const;
  /// Sets Parameter::step, and Parameter::decays where a group sets the weight decay.
  void set(Parameter& parameter) const;
  /// Throws InputError for a group that sets values of frozen parameters alone.
  void require_trained(const std::set<std::string, std::less<>>& trained) const;

 private:
  /// What groups set for a parameter, and which of them.
  struct Member {
    StepOptions step;
    bool frozen = false;
    std::vector<const OptimizerGroup*> groups;
  };

  void add(const std::string& name, const OptimizerGroup& group, int clip_group);

  const std::vector<OptimizerGroup>& groups_;
  std::map<std::string, Member, std::less<>> members_;
};

}  // namespace fsdp
