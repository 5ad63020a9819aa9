// SPDX-License-Identifier: Apache-2.0
/// @file
/// The metrics of a run: its records, the metrics file, and TensorBoard's event files.
///
/// The metrics file has one JSON object per line, appended and flushed at once. Numbers are printed so that they read
/// back to the same value. NaN and infinities, which JSON lacks, are strings. An empty optional is written as null.
///
/// Event files are TFRecords of `Event` messages, appended and flushed at once. Values that torchtitan also logs have
/// torchtitan's tags; speeds are per rank, as in torchtitan. docs/metrics.md lists all tags.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/monitor.hpp>
#include <tessera/fsdp/core/named_values.hpp>
#include <tessera/fsdp/plan/plan.hpp>

namespace fsdp::report {

/// Seconds of a step.
struct StepTimes {
  double all = 0;
  /// Seconds that a rank waits for or executes collectives; null if not measured.
  std::optional<double> collectives = {};
};

/// A measured matmul rate of all ranks together.
struct MatmulPeak {
  double flops_per_second = 1;
  std::string name = {};
};

/// A rank that computes longer than the others.
struct Straggler {
  std::int64_t rank = 0;
  double ratio = 1;  ///< its seconds divided by those of the median rank
};

/// The first line: describes the run.
struct StartRecord {
  std::string stack = {};       ///< such as "fsdp2 threads:2 bf16 off"
  std::string model_name = {};  ///< the value of --model
  ConfigValues sizes = {};      ///< values of the model's config
  std::string optimizer = {};   ///< name of the optimizer
  ConfigValues constants = {};  ///< constants of the optimizer
  ConfigValues groups = {};     ///< parameter groups (--group): the values that each sets, as text
  std::uint64_t seed = 0;
  std::int64_t world = 1;
  std::int64_t ranks_per_sequence = 1;  ///< consecutive ranks that share each sequence (--sequence)
  /// Number of pieces of a step, whatever the number of ranks; 0: one for each micro-batch of each rank.
  std::int64_t pieces = 0;
  std::int64_t threads = 1;          ///< per rank; the last bits of results depend on it
  std::string instruction_set = {};  ///< such as "avx2"; the last bits of results depend on it; empty if they do not
  std::string library = {};          ///< Monitor::library of the world
  std::int64_t parameters = 0;
  std::int64_t trained = 0;     ///< number of parameters that are not frozen
  std::int64_t first_step = 1;  ///< above 1 after a resume
  std::int64_t steps = 0;
  std::int64_t skipped_binary = 0;         ///< number of binary files that were skipped
  std::optional<StepTimes> planned = {};   ///< planned times of a step; omitted without --cluster
  std::vector<plan::PartPlan> parts = {};  ///< Plan::parts; omitted if all tensors have one strategy and type
};

/// The values of one parameter group (--group) in a step.
struct GroupRecord {
  std::string name = {};                 ///< the selection of its parameters
  std::optional<double> lr = {};         ///< learning rate of the group; empty if it is the global one
  std::optional<double> grad_norm = {};  ///< norm before clipping; empty unless the group is clipped separately
};

/// A line for each step.
struct StepRecord {
  std::int64_t step = 0;  ///< number of the step; the first is 1
  double loss = 0;        ///< mean over the step's targets, before the update
  double grad_norm = 0;   ///< norm before clipping, of all parameters except groups that are clipped separately
  std::optional<double> loss_scale = {};  ///< empty if loss scaling is off
  bool skipped = false;                   ///< whether gradients overflowed, so that no weight changed
  double lr = 0;
  std::int64_t tokens = 0;  ///< number of tokens so far, including this step
  double tokens_per_second = 0;
  double step_seconds = 0;
  std::int64_t peak_bytes = 0;  ///< peak of tensor memory on this rank
  double tflops = 0;
  std::optional<double> mfu = {};  ///< null if no peak is known
  std::string mfu_peak = {};  ///< the peak that mfu divides by (peak_name in tessera/trainer/report/matmul_peak.hpp)
  comm::MeshTraffic traffic = {};        ///< collectives of the step's passes and update; omitted if there are none
  std::vector<GroupRecord> groups = {};  ///< groups with their own learning rate or norm
};

/// A line for each held-out loss.
struct ValidationRecord {
  std::int64_t step = 0;
  double validation_loss = 0;
  std::int64_t tokens = 0;  ///< number of targets in the held-out part
};

/// A line for each sample that the model wrote (--sample-prompt).
struct SampleRecord {
  std::int64_t step = 0;
  std::string prompt = {};
  std::string text = {};   ///< the text after the prompt
  bool is_answer = false;  ///< whether the prompt is a user's message and the text is the answer; console only

  /// Prompt and text for display: an answer starts on its own line.
  std::string whole() const { return prompt + (is_answer ? "\n" : "") + text; }
};

/// The last line: summarizes the run.
struct SummaryRecord {
  std::int64_t steps = 0;
  std::optional<double> loss = {};             ///< loss of the last step
  std::optional<double> validation_loss = {};  ///< null if no data are held out
  std::string_view unit = "tokens";            ///< unit of `tokens` (nn::unit_of); console only
  std::int64_t tokens = 0;
  double seconds = 0;
  /// From the run's start to the end of its first step; null if there is none.
  std::optional<double> first_step_seconds = {};
  std::optional<StepTimes> step = {};       ///< mean times of rank 0's steps after the first; null if there are none
  std::optional<StepTimes> planned = {};    ///< times of a step that a plan expected; omitted without --cluster
  std::optional<Straggler> straggler = {};  ///< omitted if no rank is a straggler
  std::int64_t peak_bytes = 0;
  std::string checkpoint = {};     ///< path of the last checkpoint; empty if there is none
  comm::MeshTraffic traffic = {};  ///< all collectives of the run; omitted if there are none
};

/// Return a record as its JSON line, without the newline.
/// @{
std::string json_line(const StartRecord& record);
std::string json_line(const StepRecord& record);
std::string json_line(const ValidationRecord& record);
std::string json_line(const SampleRecord& record);
std::string json_line(const SummaryRecord& record);
/// @}

/// Writes records to a file; does nothing if the path is empty.
class Metrics {
 public:
  Metrics() = default;
  /// Opens the file to append to it. Throws InputError if it cannot be opened.
  explicit Metrics(const std::filesystem::path& path);

  /// Appends a line and flushes it. Throws InputError if it cannot be written.
  template <class Record>
  void write(const Record& record) {
    if (!path_.empty()) append(json_line(record));
  }

 private:
  void append(const std::string& line);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// A number with its tag.
struct Scalar {
  std::string_view tag;
  double value = 0;
};

/// Encodes one record: length, checksum of the length, message, checksum of the message.
std::string tf_record(std::string_view message);

/// Encodes an `Event` message with the version of the file format. `seconds`: Unix time.
std::string version_event(double seconds);
std::string start_event(double seconds, std::int64_t step);  ///< readers then drop earlier data of this and later steps
/// Encodes an event with numbers.
std::string scalars_event(double seconds, std::int64_t step, std::span<const Scalar> scalars);
/// Encodes an event with a text for TensorBoard's text plugin, which shows it as Markdown.
std::string text_event(double seconds, std::int64_t step, std::string_view tag, std::string_view text);

/// Writes records to a new event file; does nothing if the path is empty.
class TensorBoard {
 public:
  TensorBoard() = default;
  /// Creates the directory if needed, and a file whose name sorts after all others in it, since readers take files in
  /// the order of their names. Throws InputError if it cannot be written.
  explicit TensorBoard(const std::filesystem::path& directory);

  /// Stores the number of ranks and writes a start event for the run's first step, so that readers drop the data of an
  /// earlier run from that step on.
  void write(const StartRecord& record);
  /// Appends an event and flushes it. Throws InputError if it cannot be written.
  /// @{
  void write(const StepRecord& record);
  void write(const ValidationRecord& record);
  void write(const SampleRecord& record);
  /// @}
  void write(const SummaryRecord&) {}  ///< writes nothing: other records contain all its values

 private:
  void append(const std::string& event);

  std::filesystem::path path_;
  std::ofstream file_;
  double ranks_ = 1;
};

}  // namespace fsdp::report
