// SPDX-License-Identifier: Apache-2.0
/// @file
/// What `tessera diff` says of two files of digests, or of two folders with tensors.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <tessera/trainer/report/digest_comparison.hpp>
#include <tessera/trainer/report/digest_file.hpp>

namespace fsdp::report {

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
