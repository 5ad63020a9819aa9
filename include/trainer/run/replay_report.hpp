// SPDX-License-Identifier: Apache-2.0
/// @file
/// The output of `tessera replay` for a step, and the comparison of the step with the run's results.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/verification/step_digest.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/digest_file.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {

/// A step's metrics.
struct LossAndNorm {
  double loss = 0, norm = 0;
  std::map<std::string, double> apart = {};  ///< norms of the parameter groups that are clipped separately
};

/// The recomputed step.
struct ReplayedStep {
  report::DigestStart start = {};
  std::vector<StepDigest> digests = {};
  std::string from = {};  ///< the checkpoint before the step; empty if computed from the run's beginning
  LossAndNorm found = {};
  bool stopped = false;  ///< whether the step diverged, so that no weight changed
};

/// Writes the digest files of a request, reports the step to the user, and compares it with --against. Rank 0
/// constructs one before the step is computed.
class ReplayReport {
 public:
  /// Reads the data to compare with. Throws InputError if they do not contain the step. The request must outlive this
  /// object.
  explicit ReplayReport(const ReplayRequest& request);

  /// Opens the files to write. `tensors`: digests are also written to its folder; may be null. Throws InputError if a
  /// file cannot be opened, or contains the digests of other runs.
  void open(const report::DigestStart& start, const report::StepTensors* tensors);
  /// Writes the digests and prints the result. Returns the exit status: 0, or 1 if the run computed something else.
  [[nodiscard]] int tell(const ReplayedStep& step);

 private:
  report::DigestDiff compared(const ReplayedStep& step) const;

  const ReplayRequest& request_;
  std::int64_t tensor_bytes_ = 0;
  report::DigestWriter digests_, beside_tensors_;
  std::optional<report::DigestSource> theirs_;  ///< data of --against for the step alone
  std::optional<LossAndNorm> metrics_;
};

}  // namespace fsdp::train
