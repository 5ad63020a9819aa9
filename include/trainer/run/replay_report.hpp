// SPDX-License-Identifier: Apache-2.0
/// @file
/// The output of `tessera replay` for a step, and whether the step equals what the run computed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <tessera/fsdp/execution/step_digest.hpp>
#include <tessera/trainer/report/digest_diff.hpp>
#include <tessera/trainer/report/digest_file.hpp>
#include <tessera/trainer/report/step_tensors.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {

/// A step's metrics.
struct LossAndNorm {
  double loss = 0, norm = 0;
  std::map<std::string, double> apart = {};  ///< norms of the groups of parameters that are clipped apart
};

/// The step that was computed again.
struct ReplayedStep {
  report::DigestStart start = {};
  std::vector<StepDigest> digests = {};
  std::string from = {};  ///< the checkpoint; empty: the beginning
  LossAndNorm found = {};
  bool stopped = false;  ///< the step diverged: no weight was touched
};

/// Writes the files of a request for digests, tells the user of the step, and compares it with what --against names.
/// Rank 0 makes one before the step is computed.
class ReplayReport {
 public:
  /// Reads what to compare with. Throws InputError if it lacks the step. The request must outlive it.
  explicit ReplayReport(const ReplayRequest& request);

  /// Opens the files to write. `tensors`: its folder gets digests too; may be null. Throws InputError if one cannot be
  /// opened, or holds the digests of other runs.
  void open(const report::DigestStart& start, const report::StepTensors* tensors);
  /// Writes the digests and prints what was found. Returns the exit status: 0, or 1 if the run computed something else.
  [[nodiscard]] int tell(const ReplayedStep& step);

 private:
  report::DigestDiff compared(const ReplayedStep& step) const;

  const ReplayRequest& request_;
  std::int64_t tensor_bytes_ = 0;
  report::DigestWriter digests_, beside_tensors_;
  std::optional<report::DigestSource> theirs_;  ///< the step alone
  std::optional<LossAndNorm> metrics_;
};

}  // namespace fsdp::train
