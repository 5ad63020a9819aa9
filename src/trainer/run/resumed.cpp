// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/resumed.hpp>

#include <algorithm>
#include <array>
#include <set>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flags.hpp>

namespace fsdp::train {
namespace {

/// Flags that are not recorded: paths, output, and flags that are compared separately.
// clang-format off
const std::set<std::string, std::less<>> no_part = {
    "checkpoint-dir", "checkpoint-every", "chat-template", "cuda-graphs", "data", "deadline", "device-deadline", "disk-deadline",
    "dry-run", "end-token", "keep", "log-every", "memory", "metrics", "on-signal", "patience", "print-schedule", "resume",
    "resume-anyway", "sample-prompt", "sample-tokens", "shared-windows", "tensorboard", "text-field", "threads", "token-cache", "tokenizer", "trace",
    "validation-every", "validation-windows"};
// clang-format on

/// Flags that decide which data a step sees.
constexpr std::array<std::string_view, 3> order = {"batch-size", "data", "validation-fraction"};

/// "--lr", or "the data".
std::string subject_of(const std::string& name) {
  if (name == "data" || name == "stack") return "the " + name;
  if (name == "instruction-set") return "the instruction set";
  return name == "ranks" ? "the number of ranks" : "--" + name;
}

std::string value_in_words(const std::string& value) { return value.empty() ? "not given" : shortened(value, 400); }

}  // namespace

RunRecord record_of(const TrainOptions& options) {
  TrainOptions copy = options;
  FlagSet flags;
  bind(flags, copy);
  RunRecord record;
  for (const Flag& flag : flags.flags()) {
    if (no_part.contains(flag.name)) continue;
    std::string text;
    for (const std::string& part : flag.get()) text += (text.empty() ? "" : " ") + part;
    record[flag.name] = text;
  }
  return record;
}

void add_optimizer(RunRecord& record, std::string_view name, const ConfigValues& constants) {
  record["optimizer"] = std::string(name);
  for (const ConfigValue& constant : constants) record[flag_name(constant.name)] = to_text(constant);
}

void add_config(RunRecord& record, const ConfigValues& values) {
  for (const ConfigValue& value : values) record.emplace(flag_name(value.name), to_text(value));
}

Resumed compare_with(const std::string& path, const checkpoint::TrainerState& then, const RunRecord& now,
                     const TrainOptions& options, std::int64_t windows) {
  const std::string prefix = message("--resume ", path, ": ");
  const std::string anyway = ", or --resume-anyway to begin their order anew";
  Resumed resumed{.position = {.epoch = then.epoch, .index = then.index},
                  .lines = {message("resumed from ", path, ": step ", then.step, ", epoch ", then.epoch, ", window ",
                                    then.index, " of ", then.windows)}};
  bool anew = false;
  const auto refuse = [&](bool differs, const std::string& what) {
    if (!differs) return;
    require<InputError>(options.resume_anyway, prefix, what, anyway);
    anew = true;
    resumed.lines.push_back("resumed anyway: " + what);
  };
  refuse(
      then.seq_len != options.seq_len || then.windows != windows,
      message("was trained on ", then.windows, " windows of ", then.seq_len, " tokens, these data and flags give ",
              windows, " of ", options.seq_len, "; resume with the same --data, --seq-len and --validation-fraction"));
  refuse(then.seed != options.seed, message("the run's seed was ", then.seed, "; resume with --seed ", then.seed));
  require<InputError>(then.step <= options.steps, prefix, "is at step ", then.step, " already; --steps ", options.steps,
                      " counts those of the whole run");
  if (then.run.empty()) resumed.lines.push_back("resumed: it does not say with which flags it was trained");
  for (const auto& [name, value] : now) {
    const auto before = then.run.find(name);
    if (before == then.run.end() || before->second == value) continue;
    if (name == "seed" || name == "seq-len") continue;  // checked above
    const std::string change =
        message(subject_of(name), " was ", value_in_words(before->second), ", is ", value_in_words(value));
    if (std::ranges::find(order, name) != order.end())
      refuse(true, change + "; resume with what it was");
    else
      resumed.lines.push_back("resumed: " + change);
  }
  if (anew) resumed.position = {.epoch = then.epoch + 1, .index = 0};
  return resumed;
}

}  // namespace fsdp::train
