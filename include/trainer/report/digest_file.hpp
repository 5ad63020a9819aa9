// SPDX-License-Identifier: Apache-2.0
/// @file
/// The file of --digests: 64 bits of all that each step computed, as JSON lines.
///
/// The first line describes the run. Each step follows in the order of computation: streams, piece after piece, then
/// gradients and weights of each unit's parameters. A run that is given an earlier run's file appends to it, with a
/// first line of its own; of a step that is there twice, the later one counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tessera/fsdp/core/config_values.hpp>
#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/trainer/report/metrics.hpp>

namespace fsdp::report {

/// The first line. Runs of other sizes cannot be compared, nor streams of other pieces. The last bits may depend on the
/// rest.
struct DigestStart {
  std::int64_t pieces = 1;  ///< of a step: those of the strategy, or one for each micro-batch of each rank
  std::string stack = {};   ///< as StartRecord's, and so are the others
  std::string model_name = {};
  ConfigValues sizes = {};
  std::uint64_t seed = 0;
  std::int64_t world = 1;
  std::int64_t threads = 1;
  std::string instruction_set = {};

  friend bool operator==(const DigestStart&, const DigestStart&) = default;
};

/// Returns the first line of a run. `micro_batches`: of each rank, where its steps are not cut into pieces.
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
  /// Opens the file to append to it, and first ends a line that was cut off. Throws InputError if it cannot be opened.
  explicit DigestWriter(const std::filesystem::path& path);

  /// Throws InputError if the file holds runs that this one cannot be compared with, so that nobody could read it.
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
  bool used_ = false;                  ///< there was a first line of a run
  std::optional<DigestStart> before_;  ///< the last one; nothing if it is of another kind of file
};

/// The digests of a file.
struct DigestFile {
  std::string name = {};  ///< its path
  DigestStart start = {};
  /// The tensors digested in each step, in the order of computation; their bits are 0.
  std::vector<StepDigest> places = {};
  std::map<std::int64_t, std::vector<std::uint64_t>> steps = {};  ///< by number: the bits, [places]
  std::vector<std::string> left_out = {};  ///< a sentence for each line and step that is not whole
};

/// Reads a file. Throws InputError if it cannot be read, has no digests, or holds runs that cannot be compared with
/// each other.
DigestFile read_digests(const std::filesystem::path& path);

/// Returns "piece 3, block 2, forward", or "block 2, gradient".
std::string in_words(const StepDigest& place);

/// Returns "layers is 2 and 3" of the first size in which two runs differ; empty if none does.
std::string other_size(const DigestStart& a, const DigestStart& b);

}  // namespace fsdp::report
