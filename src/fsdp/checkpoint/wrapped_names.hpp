// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tensor names that differ from the model's because of a wrapper: torch.compile, DistributedDataParallel, a larger
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

/// Names that are expected but absent, and names that are present but unknown.
struct NameDifferences {
  std::vector<std::string> missing, unknown;

  bool none() const { return missing.empty() && unknown.empty(); }
};
using IgnoredName = std::function<bool(const std::string&)>;
NameDifferences differences(std::span<const std::string> names, std::span<const NamedShape> expected,
                            const IgnoredName& ignored);

/// The mapping from the names in a file to the model's names.
struct WrappedNames {
  std::string cause;  ///< cause of the differences, as a part of a sentence: "all 12 names begin with ..."
  std::map<std::string, std::string> names;  ///< names in the model by stored name
  NameDifferences left;                      ///< differences that remain after the mapping
};

/// Returns the change of prefixes that leaves the fewest differences; nothing if no name is missing, or if no change
/// reduces the number of missing names.
std::optional<WrappedNames> wrapped_names(const WeightFiles& files, std::span<const NamedShape> expected,
                                          const IgnoredName& ignored);

}  // namespace fsdp::checkpoint
