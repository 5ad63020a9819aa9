// SPDX-License-Identifier: Apache-2.0
/// @file
/// The parameters of each OptimizerGroup, and the combined settings of all groups of a parameter.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/module/units.hpp>

namespace fsdp {

/// The values that groups set for each parameter, by name. The groups must outlive this object.
class SetByGroups {
 public:
  /// Throws InputError for a group that matches no parameter, sets nothing, is listed twice or has a value out of its
  /// range, and for groups that give a parameter different values.
  SetByGroups(std::span<const Unit> units, const std::vector<OptimizerGroup>& groups);

  /// Whether a group freezes the parameter.
  bool freezes(const std::string& name) const;
  /// Sets Parameter::step, and Parameter::decays if a group sets the weight decay.
  void set(Parameter& parameter) const;
  /// Throws InputError for a group that sets values only for frozen parameters.
  void require_trained(const std::set<std::string, std::less<>>& trained) const;

 private:
  /// The values that groups set for a parameter, and the groups that set them.
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
