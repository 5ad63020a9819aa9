// SPDX-License-Identifier: Apache-2.0
/// @file
/// Names of tensors that differ from a model's by what wraps it: torch.compile, DistributedDataParallel, a larger
/// model, or a file of the model without its head.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/checkpoint/listing.hpp>

namespace fsdp::checkpoint {

/// Names that are expected and absent, and names that are present and unknown.
struct NameDifferences {
  std::vector<std::string> missing, unknown;

  bool none() const { return missing.empty() && unknown.empty(); }
};
using IgnoredName = std::function<bool(const std::string&)>;
NameDifferences differences(std::span<const std::string> names, std::span<const NamedShape> expected,
                            const IgnoredName& ignored);

/// How the names of a file become the model's.
struct WrappedNames {
  std::string cause;  ///< of the differences, as a part of a sentence: "all 12 names begin with ..."
  std::map<std::string, std::string> names;  ///< the model's, by the stored ones
  NameDifferences left;                      ///< what still differs
};

/// Returns the change of prefixes that leaves the fewest differences; nothing if no name is missing, or none helps.
std::optional<WrappedNames> wrapped_names(const WeightFiles& files, std::span<const NamedShape> expected,
                                          const IgnoredName& ignored);

}  // namespace fsdp::checkpoint
