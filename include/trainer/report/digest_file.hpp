// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file of --digests: 64-bit digests of the results of each step, as JSON lines.
///
/// The first line describes the run. Each step follows in the order of computation: streams, piece after piece, then
/// gradients and weights of each unit's parameters. A run that is given an earlier run's file appends to it, starting
/// with its own first line. If a step occurs twice, the later one counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::report {

/// The first line. Runs with different `sizes` cannot be compared; with different `pieces`, their streams cannot. The
/// last bits of results may depend on the other members.
struct DigestStart {
  std::int64_t pieces = 1;  ///< number of pieces of a step: the strategy's, or one for each micro-batch of each rank
  std::string stack = {};   ///< this and the following members: see StartRecord
  std::string model_name = {};
  ConfigValues sizes = {};
  std::uint64_t seed = 0;
  std::int64_t world = 1;
  std::int64_t threads = 1;
  std::string instruction_set = {};

  friend bool operator==(const DigestStart&, const DigestStart&) = default;
};

/// Returns the first line of a run. `micro_batches`: number per rank; used if steps are not cut into pieces.
DigestStart digest_start(const StartRecord& run, std::int64_t micro_batches);

/// Return a line of the file, without the newline.
/// @{
std::string json_line(const DigestStart& start);
std::string json_line(std::int64_t step, const StepDigest& digest);
/// @}

/// Writes digests to a file; does nothing if the path is empty.
class DigestWriter {
 public:
  DigestWriter() = default;
  /// Opens the file for appending, and first terminates an incomplete last line. Throws InputError if it cannot be
  /// opened.
  explicit DigestWriter(const std::filesystem::path& path);

  /// Throws InputError if the file contains runs that this one cannot be compared with: such a file could not be read.
  void require_like(const DigestStart& start) const;
  /// Append lines and flush them. Throw InputError if they cannot be written. `begin` checks require_like first.
  /// @{
  void begin(const DigestStart& start);
  void write(std::int64_t step, std::span<const StepDigest> digests);
  /// @}

 private:
  void append(const std::string& lines);

  std::filesystem::path path_;
  std::ofstream file_;
  bool used_ = false;                  ///< whether the file has a first line of a run
  std::optional<DigestStart> before_;  ///< the last first line; empty if it is not from a digest file
};

/// The digests of a file.
struct DigestFile {
  std::string name = {};  ///< path of the file
  DigestStart start = {};
  /// The tensors digested in each step, in the order of computation; their bits are 0.
  std::vector<StepDigest> places = {};
  std::map<std::int64_t, std::vector<std::uint64_t>> steps = {};  ///< by step number: the bits of its digests, [places]
  std::vector<std::string> left_out = {};                         ///< one sentence for each incomplete line or step
};

/// Reads a file. Throws InputError if it cannot be read, has no digests, or contains runs that cannot be compared with
/// each other.
DigestFile read_digests(const std::filesystem::path& path);

/// Returns "piece 3, block 2, forward", or "block 2, gradient".
std::string in_words(const StepDigest& place);

/// Returns "layers is 2 and 3" for the first size in which two runs differ; empty if all sizes are equal.
std::string other_size(const DigestStart& a, const DigestStart& b);

}  // namespace fsdp::report
