// SPDX-License-Identifier: Apache-2.0
/// @file
/// The arguments of a command on one stack, as its ranks compare them.
#pragma once

#include <string>

#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

namespace fsdp::train {

template <class Model>
using ShardingOf = typename Model::Stack::Sharding;
template <class Model>
using TilingOf = typename Model::Stack::Tiling;

/// Returns the text that agree_on_arguments compares: the flags, one per line, with policies and their numbers in place
/// of the flags that choose them.
std::string arguments_text(const FlagSet& flags, const std::string& sharding, const std::string& precision,
                           const std::string& tiling);
/// The same for a model's stack.
template <class Model>
std::string arguments_text(const FlagSet& flags, const ShardingOf<Model>& sharding, const TilingOf<Model>& tiling) {
  return arguments_text(flags, policy_text(sharding), policy_text<typename Model::Stack::Precision>(),
                        policy_text(tiling));
}

}  // namespace fsdp::train
