// SPDX-License-Identifier: Apache-2.0
/// @file
/// The metrics file: one JSON object per line, appended and flushed at once.
///
/// Numbers are printed so that they read back to the same value. NaN and infinities, which JSON lacks, are strings.
/// A record lists what its line holds by `visit`, which calls `visitor(name, value)`; an empty optional is null there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/comm/traffic.hpp>
#include <tessera/fsdp/core/config_values.hpp>

namespace fsdp::report {

/// Returns nothing for an empty text.
inline std::optional<std::string> unless_empty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

/// Seconds of a step.
struct StepTimes {
  double all = 0;
  std::optional<double> collectives = {};  ///< in which a rank waits for them or makes them; null where none is seen
};

/// A measured matmul rate of all ranks together.
struct MatmulPeak {
  double flops_per_second = 1;
  std::string name = {};
};

/// A rank that computes longer than the others.
struct Straggler {
  std::int64_t rank = 0;
  double ratio = 1;  ///< of its seconds to those of the median rank
};

/// The first line: describes the run.
struct StartRecord {
  std::string stack = {};       ///< such as "fsdp2 threads:2 bf16 off"
  std::string model_name = {};  ///< the value of --model
  ConfigValues sizes = {};      ///< values of the model's config
  std::string optimizer = {};   ///< its name
  ConfigValues constants = {};  ///< of the optimizer
  ConfigValues groups = {};     ///< groups of parameters (--group): what each sets, as text
  std::uint64_t seed = 0;
  std::int64_t world = 1;
  std::int64_t ranks_per_sequence = 1;  ///< consecutive ranks that share each sequence (--sequence)
  std::int64_t pieces = 0;              ///< of a step, on any number of ranks; 0: one for each micro-batch of each rank
  std::int64_t threads = 1;             ///< per rank; the last bits of results depend on it
  std::string instruction_set = {};  ///< such as "avx2"; the last bits depend on it, too; empty if it does not matter
  std::int64_t parameters = 0;
  std::int64_t trained = 0;     ///< of the parameters, those that are not frozen
  std::int64_t first_step = 1;  ///< above 1 after a resume
  std::int64_t steps = 0;
  std::int64_t skipped_binary = 0;        ///< number of binary files that were skipped
  std::optional<StepTimes> planned = {};  ///< of a step; left out without --cluster

  /// The optimizer's name and constants.
  ConfigValues named_constants() const;

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("event", "start");
    visitor("stack", self.stack);
    visitor("model", self.model_name);
    visitor("sizes", self.sizes);
    visitor("optimizer", self.named_constants());
    visitor("parameters", self.parameters);
    if (self.trained < self.parameters) visitor("trained_parameters", self.trained);
    visitor("seed", self.seed);
    visitor("world", self.world);
    visitor("threads", self.threads);
    visitor("instruction_set", self.instruction_set);
    visitor("first_step", self.first_step);
    visitor("steps", self.steps);
    visitor("skipped_binary", self.skipped_binary);
    if (self.ranks_per_sequence > 1) visitor("ranks_per_sequence", self.ranks_per_sequence);
    if (self.pieces > 0) visitor("pieces", self.pieces);
    if (!self.groups.empty()) visitor("groups", self.groups);
    if (self.planned) visitor("planned_step_seconds", self.planned->all);
  }
};

/// What a step did with a group of parameters (--group).
struct GroupRecord {
  std::string name = {};                 ///< which parameters it has
  std::optional<double> lr = {};         ///< empty: as the others'
  std::optional<double> grad_norm = {};  ///< before clipping; empty unless it is clipped apart
};

/// A line for each step.
struct StepRecord {
  std::int64_t step = 0;                  ///< the first is 1
  double loss = 0;                        ///< mean over the step's targets, before the update
  double grad_norm = 0;                   ///< before clipping; global, but for groups that are clipped apart
  std::optional<double> loss_scale = {};  ///< empty if loss scaling is off
  bool skipped = false;                   ///< gradients overflowed: no weight changed
  double lr = 0;
  std::int64_t tokens = 0;  ///< seen so far, this step included
  double tokens_per_second = 0;
  double step_seconds = 0;
  std::int64_t peak_bytes = 0;  ///< of tensor memory on this rank
  double tflops = 0;
  std::optional<double> mfu = {};  ///< null if no peak is known
  std::string mfu_peak = {};  ///< the peak that mfu divides by (peak_name in tessera/trainer/report/matmul_peak.hpp)
  comm::MeshTraffic traffic = {};        ///< collectives of its passes and its update; left out if there are none
  std::vector<GroupRecord> groups = {};  ///< those that have a learning rate or a norm of their own

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("step", self.step);
    visitor("loss", self.loss);
    visitor("grad_norm", self.grad_norm);
    visitor("lr", self.lr);
    visitor("tokens", self.tokens);
    visitor("tokens_per_second", self.tokens_per_second);
    visitor("step_seconds", self.step_seconds);
    visitor("peak_bytes", self.peak_bytes);
    visitor("tflops", self.tflops);
    visitor("mfu", self.mfu);
    visitor("mfu_peak", unless_empty(self.mfu_peak));
    if (self.loss_scale) visitor("loss_scale", *self.loss_scale);
    if (self.skipped) visitor("skipped", true);
    if (self.traffic != comm::MeshTraffic{}) visitor("traffic", self.traffic);
    if (!self.groups.empty()) visitor("groups", self.groups);
  }
};

/// A line for each held-out loss.
struct ValidationRecord {
  std::int64_t step = 0;
  double validation_loss = 0;
  std::int64_t tokens = 0;  ///< number of targets in the held-out part

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("event", "validation");
    visitor("step", self.step);
    visitor("validation_loss", self.validation_loss);
    visitor("tokens", self.tokens);
  }
};

/// A line for each sample that the model wrote (--sample-prompt).
struct SampleRecord {
  std::int64_t step = 0;
  std::string prompt = {};
  std::string text = {};   ///< the text after the prompt
  bool is_answer = false;  ///< the text answers the prompt, a user's message; console only

  /// Prompt and text for display: an answer starts on its own line.
  std::string whole() const { return prompt + (is_answer ? "\n" : "") + text; }

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("event", "sample");
    visitor("step", self.step);
    visitor("prompt", self.prompt);
    visitor("text", self.text);
  }
};

/// The last line.
struct SummaryRecord {
  std::int64_t steps = 0;
  std::optional<double> loss = {};             ///< of the last step
  std::optional<double> validation_loss = {};  ///< null if nothing is held out
  std::string_view unit = "tokens";            ///< what `tokens` counts (nn::unit_of); console only
  std::int64_t tokens = 0;
  double seconds = 0;
  std::optional<double> first_step_seconds = {};  ///< from the run's start to the end of its first step; null without
  std::optional<StepTimes> step = {};             ///< the mean of rank 0's steps after the first; null without
  std::optional<StepTimes> planned = {};          ///< what a plan expected of it; left out without --cluster
  std::optional<Straggler> straggler = {};        ///< left out if there is none
  std::int64_t peak_bytes = 0;
  std::string checkpoint = {};     ///< path of the last one; empty if there is none
  comm::MeshTraffic traffic = {};  ///< all collectives of the run; left out if there are none

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("event", "summary");
    visitor("steps", self.steps);
    visitor("loss", self.loss);
    visitor("validation_loss", self.validation_loss);
    visitor("tokens", self.tokens);
    visitor("seconds", self.seconds);
    visitor("first_step_seconds", self.first_step_seconds);
    visitor("step_seconds", self.step ? std::optional(self.step->all) : std::nullopt);
    if (self.step && self.step->collectives) visitor("collective_seconds", *self.step->collectives);
    if (self.planned) visitor("planned_step_seconds", self.planned->all);
    if (self.planned) visitor("planned_collective_seconds", self.planned->collectives);
    if (self.straggler) visitor("straggler", self.straggler->rank);
    visitor("peak_bytes", self.peak_bytes);
    visitor("checkpoint", unless_empty(self.checkpoint));
    if (self.traffic != comm::MeshTraffic{}) visitor("traffic", self.traffic);
  }
};

/// Returns one of these records as its JSON line, without the newline.
template <class Record>
std::string json_line(const Record& record);

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

}  // namespace fsdp::report
