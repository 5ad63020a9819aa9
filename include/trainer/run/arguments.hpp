// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checks that all ranks of a command on one stack agree on their arguments before they compute.
#pragma once

#include <string>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/policy_text.hpp>
#include <tessera/trainer/flags/flag_set.hpp>

namespace fsdp::train {

template <class Model>
using ShardingOf = typename Model::Stack::Sharding;
template <class Model>
using TilingOf = typename Model::Stack::Tiling;

/// The texts of policies, in the syntax of flags.
struct PolicyTexts {
  std::string sharding = {}, precision = {}, tiling = {};
};
/// Returns the texts of a stack's policies, with their parameters.
template <class Stack>
PolicyTexts policy_texts(const typename Stack::Sharding& sharding, const typename Stack::Tiling& tiling) {
  return {.sharding = policy_text(sharding),
          .precision = policy_text<typename Stack::Precision>(),
          .tiling = policy_text(tiling)};
}

/// Makes all ranks use the smallest of their instruction sets, so that ranks on different processors use the same
/// kernels; rank 0 warns if they differ. Collective; call it before the first computation. Throws InputError unless the
/// environment variables that choose the bf16 matmul are the same on all ranks.
void agree_on_instruction_set(const comm::Ranks& ranks);

/// Throws InputError on all ranks unless they have the same arguments: flags, policies, and the further lines in
/// `more`. Then calls agree_on_instruction_set. Collective.
void agree_on_run(const comm::Ranks& ranks, const FlagSet& flags, const PolicyTexts& policies,
                  const std::string& more = {});

}  // namespace fsdp::train
