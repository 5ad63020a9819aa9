// SPDX-License-Identifier: Apache-2.0
/// @file
/// The comparison of `tessera diff`: finds where two digest files, or two folders with tensors, first differ.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/verification/step_digest.hpp>
#include <tessera/trainer/report/digest_file.hpp>

namespace fsdp::report {

/// The first place at which two runs differ.
struct Divergence {
  std::int64_t step = 0;
  StepDigest place = {};  ///< the digest of that place; its bits are from the first file

  friend bool operator==(const Divergence&, const Divergence&) = default;
};
using Parting = Divergence;  ///< its former name, for this version

/// The result of comparing two digest files.
struct DigestComparison {
  std::vector<std::int64_t> same_steps = {};  ///< numbers of the equal steps before the first difference
  std::int64_t same_digests = 0;              ///< number of equal digests in those steps
  std::optional<Divergence> parting = {};  ///< the first difference in the order of computation; empty if there is none
  std::vector<std::string> notes = {};     ///< one sentence for each thing that could not be compared
};

/// Compares the steps that both files contain. If the files cut steps into different pieces, compares only gradients
/// and weights. Throws InputError if the files are from different models, or have no step in common.
DigestComparison compare(const DigestFile& a, const DigestFile& b);

/// Returns "steps 1 to 41 are the same (3280 digests); they part in step 42, piece 3, block 2, forward".
std::string in_words(const DigestComparison& comparison);
/// Returns "threads are 1 and 2; ...": the differences between two first lines that may change bits, if any.
std::string differences(const DigestStart& a, const DigestStart& b);

/// Digests, and the folder with their tensors if they were read from one.
struct DigestSource {
  DigestFile file = {};
  std::optional<std::filesystem::path> folder = {};
};

/// Reads a file of digests, or a folder that `tessera replay --tensors` wrote. Throws InputError.
DigestSource read_source(const std::filesystem::path& path);

/// The result of a comparison.
struct DigestDiff {
  bool same = false;
  std::vector<std::string> lines = {};  ///< output for the user
};

/// Compares two sources. The result reports the equal steps, the first difference and, if both sources have the tensors
/// at that place, the largest difference between these. Throws InputError if the sources cannot be compared.
DigestDiff diff(const DigestSource& a, const DigestSource& b);

}  // namespace fsdp::report
