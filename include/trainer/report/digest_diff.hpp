// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `tessera diff` says of two files of digests, or of two folders with tensors: where they part.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/trainer/report/digest_file.hpp>

namespace fsdp::report {

/// Where two runs part.
struct Parting {
  std::int64_t step = 0;
  StepDigest place = {};  ///< its bits are those of the first file

  friend bool operator==(const Parting&, const Parting&) = default;
};

/// What two files have in common.
struct DigestComparison {
  std::vector<std::int64_t> same_steps = {};  ///< up to where they part
  std::int64_t same_digests = 0;              ///< in those steps
  std::optional<Parting> parting = {};        ///< the first in the order of computation; nothing if they are the same
  std::vector<std::string> notes = {};        ///< a sentence for all that could not be compared
};

/// Compares the steps that both files have; if their steps are cut into other pieces, only gradients and weights.
/// Throws InputError if the files are of other models, or have no step in common.
DigestComparison compare(const DigestFile& a, const DigestFile& b);

/// Returns "steps 1 to 41 are the same (3280 digests); they part in step 42, piece 3, block 2, forward".
std::string in_words(const DigestComparison& comparison);
/// Returns "threads are 1 and 2; ...": the differences of two first lines that may change bits; empty if none.
std::string differences(const DigestStart& a, const DigestStart& b);

/// Digests, and the folder that has their tensors, if they come from one.
struct DigestSource {
  DigestFile file = {};
  std::optional<std::filesystem::path> folder = {};
};

/// Reads a file of digests, or a folder that `tessera replay --tensors` wrote. Throws InputError.
DigestSource read_source(const std::filesystem::path& path);

/// The result of a comparison.
struct DigestDiff {
  bool same = false;
  std::vector<std::string> lines = {};  ///< for the user
};

/// Compares two sources: what they share, the first place where they part, and, where both have the tensors of that
/// place, their largest difference. Throws InputError if they cannot be compared.
DigestDiff diff(const DigestSource& a, const DigestSource& b);

}  // namespace fsdp::report
