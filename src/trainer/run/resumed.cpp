// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/resumed.hpp>

#include <algorithm>
#include <array>
#include <iomanip>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>
#include <tessera/trainer/flags/flag_values.hpp>
#include <tessera/trainer/flags/flags.hpp>
#include <tessera/trainer/run/replay_request.hpp>

namespace fsdp::train {
namespace {

/// Flags that determine the data of a step.
constexpr std::array<std::string_view, 3> order = {"batch-size", "data", "validation-fraction"};

/// For runs whose steps are cut into pieces: entries that do not change results and are not reported.
const std::set<std::string, std::less<>> harmless_in_pieces = {
    "adapter", "blocks-per-unit", "from-scratch", "grad-accum",        "keep-last-block",
    "model",   "recompute",       "stack",        "merge-units-below", "tiling"};

/// Entries that are compared only between runs with pieces; for others, the stack's text has the relevant part.
constexpr std::array<std::string_view, 7> parts_of_stack = {"build",     "device", "library",     "optimizer-device",
                                                            "precision", "tiling", "tiling-plans"};

/// Returns "--lr", or "the data".
std::string subject_of(const std::string& name) {
  if (name == "data" || name == "stack" || name == "build" || name == "device") return "the " + name;
  if (name == "instruction-set") return "the instruction set";
  if (name == "library") return "the matmul library";
  if (name == "tiling-plans") return "the tile plan";
  if (name == "optimizer-device") return "the optimizer's device";
  return name == "ranks" ? "the number of ranks" : name == "pieces" ? "the number of pieces" : "--" + name;
}

std::string value_in_words(const std::string& value, const char* none = "not given") {
  return value.empty() ? none : shortened(value, 400);
}

std::string change_of(const std::string& name, const std::string& before, const std::string& value) {
  return message(subject_of(name), " was ", value_in_words(before), ", is ", value_in_words(value));
}

/// The flags that determine the learning rate of a step.
constexpr const char* of_the_rate[] = {"lr", "lr-schedule", "warmup", "lr-decay-steps", "steps"};

/// Returns the schedule of a checkpoint's run. Values that its record lacks are taken from `now`.
LrSchedule recorded_schedule(const RunRecord& then, TrainOptions now) {
  FlagSet flags;
  bind(flags, now);
  for (const char* const name : of_the_rate)
    if (const std::string value = value_of(then, name); !value.empty()) flags.find(name)->give({value});
  return schedule_of(now);
}

/// Reports a change of the next step's learning rate: as a warning if it is above the last step's, else as a line.
void compare_rates(const checkpoint::TrainerState& then, const RunRecord& now, const TrainOptions& options,
                   Resumed& resumed) {
  if (then.step == 0 || then.step >= options.steps) return;
  const LrSchedule before = recorded_schedule(then.run, options);
  const double last = lr_at(before, then.step - 1), next = lr_at(schedule_of(options), then.step);
  if (next == lr_at(before, then.step)) return;
  std::ostringstream text;
  text << std::scientific << std::setprecision(2) << "the learning rate of step " << then.step + 1 << " is " << next
       << ", after " << last << " at step " << then.step;
  const char* separator = ": ";
  for (const char* const name : of_the_rate) {
    const std::string was = value_of(then.run, name), is = value_of(now, name);
    if (!was.empty() && was != is) text << std::exchange(separator, "; ") << change_of(name, was, is);
  }
  if (next > last)
    resumed.warning = text.str();
  else
    resumed.lines.push_back("resumed: " + text.str());
}

/// Returns the values before and now of the groups of parameters (--group) in which two records differ.
std::map<std::string, std::pair<std::string, std::string>> changed_groups(const std::string& before,
                                                                          const std::string& now) {
  std::map<std::string, std::pair<std::string, std::string>> groups;
  for (const auto& [group, values] : recorded_groups(before)) groups[group].first = values;
  for (const auto& [group, values] : recorded_groups(now)) groups[group].second = values;
  std::erase_if(groups, [](const auto& group) { return group.second.first == group.second.second; });
  return groups;
}

/// If `name` determines the last bits of a run with pieces, returns advice how to resume with its value `before`.
std::string to_have_the_same_bits(const std::string& name, const std::string& before, const RunRecord& then,
                                  const RunRecord& now) {
  if (name == "threads") return "resume with --threads " + before;
  if (name == "precision" && before.ends_with("+fp32") != value_of(now, name).ends_with("+fp32"))
    return before.ends_with("+fp32") ? "resume with the run's --precision-of" : "resume without --precision-of";
  if (name == "precision") return "resume with --precision " + before;
  if (name == "instruction-set")
    return "resume on processors that have it; TESSERA_ISA chooses a lesser one than a processor has";
  if (name == "library") return "resume on machines of that kind with that library";
  if (name == "build") return "resume with a program of that build";
  if (name == "device") return "resume on that device";
  if (name != "tiling-plans") return {};
  const std::string tiling = value_of(then, "tiling");
  return tiling == value_of(now, "tiling") ? "resume with the flags that it had" : "resume with --tiling " + tiling;
}

/// Compares the records of two runs with equally many pieces. Adds lines for differences, and reports whether the
/// resumed run remains bit-identical. Throws InputError for differences that change the last bits of every step.
struct InPieces {
  std::string prefix;
  const RunRecord &then, &now;
  std::vector<std::string> lines = {};
  std::string changes = {};  ///< those that change results

  void change(const std::string& text) { changes += (changes.empty() ? "" : "; ") + text; }
  /// `anew`: the data restart, so that results differ in any case.
  void differs(const std::string& name, const std::string& before, const std::string& value, bool anew) {
    const bool plans = name == "tiling-plans";
    if (anew && plans) return;  // tile plans follow from the batch
    if (const std::string advice = to_have_the_same_bits(name, before, then, now); !advice.empty()) {
      const char* const none = plans ? "none" : "not given";
      const std::string change =
          name == "threads"
              ? message("each rank had ", before, before == "1" ? " thread" : " threads", ", and has ", value)
              : message(subject_of(name), " was ", value_in_words(before, none), ", and is ",
                        value_in_words(value, none));
      throw InputError(message(prefix, change, ", which changes the last bits; ", advice,
                               ", or leave the pieces out (:pieces=", value_of(now, "pieces"),
                               " of --sharding) to go on without the same bits"));
    }
    const std::string constant = to_text(LrShape::constant);  // then the rate does not depend on the run's length
    if (harmless_in_pieces.contains(name)) return;
    if (name == "ranks")
      lines.push_back("resumed: " + change_of(name, before, value));
    else if (name != "steps" || value_of(then, "lr-schedule") != constant || value_of(now, "lr-schedule") != constant)
      change(change_of(name, before, value));
  }
  /// Reports an entry that this run records and the other did not, because another program or optimizer created it.
  void unrecorded(const std::string& name, const std::string& value) {
    if (!harmless_in_pieces.contains(name))
      change(message(subject_of(name), " was not recorded, is ", value_in_words(value)));
  }
};

}  // namespace

std::string value_of(const RunRecord& record, const std::string& name) {
  const auto found = record.find(name);
  return found == record.end() ? std::string() : found->second;
}

RunRecord record_of(TrainOptions options) {
  FlagSet flags;
  bind(flags, options);
  RunRecord record;
  for (const Flag& flag : flags.flags()) {
    if (flag.effect != Effect::results) continue;
    std::string text;
    for (const std::string& part : flag.get()) text += (text.empty() ? "" : std::string(1, flag.between)) + part;
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
  require<InputError>(then.step <= last_step(options), prefix, "is at step ", then.step, " already, beyond --until ",
                      options.until, "; take a later step, or an earlier checkpoint");
  if (then.run.empty()) resumed.lines.push_back("resumed: it does not say with which flags it was trained");
  const std::string pieces = value_of(now, "pieces"), pieces_before = value_of(then.run, "pieces");
  std::optional<InPieces> in_pieces;
  if (pieces == pieces_before && !pieces.empty())
    in_pieces.emplace(InPieces{.prefix = prefix, .then = then.run, .now = now});
  if (pieces != pieces_before && !then.run.empty())
    resumed.lines.push_back(message("resumed: not to the bit: the number of pieces was ",
                                    pieces_before.empty() ? "none" : pieces_before, ", is ",
                                    pieces.empty() ? "none" : pieces));
  const auto differs = [&](const std::string& name, const std::string& before, const std::string& value) {
    const std::string change = change_of(name, before, value);
    if (std::ranges::find(order, name) != order.end())
      refuse(true, change + "; resume with what it was");
    else if (in_pieces)
      in_pieces->differs(name, before, value, anew);
    else if (name != "pieces" && std::ranges::find(parts_of_stack, name) == parts_of_stack.end())
      resumed.lines.push_back("resumed: " + change);
  };
  for (const auto& [name, value] : now) {
    if (name == "seed" || name == "seq-len") continue;  // checked above
    if (is_for_replay(name)) continue;
    const auto before = then.run.find(name);
    const bool unrecorded = before == then.run.end() && !then.run.empty();
    if (name == "sequence" && unrecorded && value != WholeSequences::name)  // earlier versions had only whole sequences
      differs(name, std::string(WholeSequences::name), value);
    else if (name == "group" && !then.run.empty())  // earlier versions did not record groups
      for (const auto& [group, values] : changed_groups(value_of(then.run, name), value))
        differs("group '" + group + "'", values.first, values.second);
    else if (before != then.run.end() && before->second != value)
      differs(name, before->second, value);
    else if (unrecorded && in_pieces && name != "sequence" && name != "precision-of")
      in_pieces->unrecorded(name, value);
  }
  if (in_pieces) {
    if (anew) in_pieces->change("the order of the data begins anew");
    std::ranges::move(in_pieces->lines, std::back_inserter(resumed.lines));
    resumed.lines.push_back(in_pieces->changes.empty() ? "resumed: goes on to the bit"
                                                       : "resumed: goes on, not to the bit: " + in_pieces->changes);
  }
  if (!then.run.empty()) compare_rates(then, now, options, resumed);
  if (anew) resumed.position = {.epoch = then.epoch + 1, .index = 0};
  return resumed;
}

}  // namespace fsdp::train
