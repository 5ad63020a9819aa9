// SPDX-License-Identifier: Apache-2.0
/// @file
/// The metrics file: one JSON object a line, appended and flushed as it happens.
///
/// Numbers are printed so that they read back to the same value; NaN and infinities, which JSON lacks, as strings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include <fsdp/models/config_values.hpp>

namespace fsdp::report {

/// The first line: what runs.
struct StartRecord {
  std::string stack = {};       ///< resolved, such as "fsdp2 threads:2 bf16 off"
  std::string model_name = {};  ///< as asked for
  ConfigValues sizes = {};      ///< of the model's config
  std::string optimizer = {};   ///< its name
  ConfigValues constants = {};  ///< of the optimizer
  std::uint64_t seed = 0;
  std::int64_t world = 1;
  std::int64_t threads = 1;          ///< per rank; results depend on it to the last bit
  std::int64_t shared_cores = 0;     ///< of rank 0's machine, where its ranks have more threads: for people
  std::string instruction_set = {};  ///< such as "avx2": likewise; empty where it does not matter
  std::int64_t parameters = 0;
  std::int64_t first_step = 1;  ///< above 1 after a resume
  std::int64_t steps = 0;
  std::int64_t skipped_binary = 0;  ///< files
};

/// A line for each step.
struct StepRecord {
  std::int64_t step = 0;                  ///< the first is 1
  double loss = 0;                        ///< mean over the step's targets, before the update
  double grad_norm = 0;                   ///< global, before clipping
  std::optional<double> loss_scale = {};  ///< where it is on
  bool skipped = false;                   ///< gradients overflowed: no weight changed
  double lr = 0;
  std::int64_t tokens = 0;  ///< seen so far, this step included
  double tokens_per_second = 0;
  double step_seconds = 0;
  std::int64_t peak_bytes = 0;  ///< of tensor memory on this rank
  double tflops = 0;
  std::optional<double> mfu = {};  ///< null where no peak is known
  std::string mfu_peak = {};       ///< the peak that mfu divides by, such as "matmul bf16 measured 0.40 TFLOP/s"
};

/// A line for each held-out loss.
struct ValidationRecord {
  std::int64_t step = 0;
  double validation_loss = 0;
  std::int64_t tokens = 0;  ///< of the held-out part
};

/// What the model wrote by itself (--sample-prompt).
struct SampleRecord {
  std::int64_t step = 0;
  std::string prompt = {};
  std::string text = {};   ///< behind the prompt
  bool is_answer = false;  ///< to the prompt: for people, no part of the line

  /// Prompt and text as people read them.
  std::string whole() const { return prompt + (is_answer ? "\n" : "") + text; }
};

/// The last line.
struct SummaryRecord {
  std::int64_t steps = 0;
  std::optional<double> loss = {};             ///< of the last step
  std::optional<double> validation_loss = {};  ///< null where nothing is held out
  std::string_view loss_unit = {};             ///< for people: no part of the line
  std::int64_t tokens = 0;
  double seconds = 0;
  std::int64_t peak_bytes = 0;
  std::string checkpoint = {};  ///< the last one's path
};

/// Each record as its line, without the newline.
/// @{
std::string json_line(const StartRecord& record);
std::string json_line(const StepRecord& record);
std::string json_line(const ValidationRecord& record);
std::string json_line(const SampleRecord& record);
std::string json_line(const SummaryRecord& record);
/// @}

/// Writes to a file, or nowhere where the path is empty.
class Metrics {
 public:
  Metrics() = default;
  /// Opens to append. Throws InputError where that is not possible.
  explicit Metrics(const std::filesystem::path& path);

  /// Appends a line, at once. Throws InputError where the file takes no more.
  template <class Record>
  void write(const Record& record) {
    if (!path_.empty()) append(json_line(record));
  }

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace fsdp::report
