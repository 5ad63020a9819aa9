// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/replay_request.hpp>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <system_error>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/terminal_text.hpp>

#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/strings.hpp"
#include "../../fsdp/core/utf8.hpp"

namespace fsdp::train {
namespace {

/// Entries of records that do not change the bits of a step, or that may differ from the replayed run's.
const std::set<std::string_view> harmless = {"adapter", "from-scratch", "model", "stack"};

bool has_pieces(const RunRecord& record) { return record.contains("pieces"); }

/// Returns an error message: a value differs from the run's, and how to fix it.
std::string sentence_of(const std::string& name, const std::string& was, const std::string& is) {
  const auto differs = [&](std::string_view what, std::string_view then) {
    return message("replay: the run's ", what, " was ", shortened(was, 400), ", here it is ", shortened(is, 400), then);
  };
  constexpr std::string_view bits = ", which changes the last bits; ";
  if (name == "data") return differs("data", "; give the run's data by --data");
  if (name == "threads")
    return message("replay: each rank of the run had ", was, was == "1" ? " thread" : " threads", ", here it has ", is,
                   bits, "take --threads ", was);
  if (name == "instruction-set")
    return differs(
        "instruction set",
        message(bits, "take processors that have it; TESSERA_ISA chooses a lesser one than a processor has"));
  if (name == "library")
    return differs("matmul library", message(bits, "take machines of that kind with that library"));
  if (name == "optimizer-device") return differs("optimizer's device", message(bits, "take the run's --offload"));
  if (name == "build" || name == "device") return differs(name, message(bits, "take that one"));
  if (name == "tiling-plans") return differs("tile plan", message(bits, "take the program that trained it"));
  return differs("--" + name, "; take a checkpoint that was saved with one setting");
}

constexpr std::string_view prefix = "replay.";
constexpr std::size_t most_bytes = 16384;  // largest size of an entry; trainer.json may have 64 KiB

std::string absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(path, error);
  return error ? path : whole.string();
}

}  // namespace

std::string request_text(const ReplayRequest& r) {
  const auto text = [](const auto& value) { return value ? message(*value) : std::string("none"); };
  return message("replay = ", r.folder, "\nstep = ", r.step, "\ndigests = ", text(r.digests),
                 "\ntensors = ", text(r.tensors), "\nunit = ", text(r.choice.unit), "\npiece = ", text(r.choice.piece),
                 "\nagainst = ", text(r.against), "\n");
}

void validate(const ReplayRequest& r, const TrainOptions& options) {
  require<InputError>(r.step >= 1 && r.step <= options.steps, "--step ", r.step, ": the run has steps 1 to ",
                      options.steps);
  require<InputError>(!r.tensors || options.sequence.ranks == 1, "--tensors writes whole streams, and in this run (",
                      "--sequence ", options.sequence.text(), ") no rank has a whole one; leave --tensors out");
  require<InputError>(r.tensors || (!r.choice.unit && !r.choice.piece), r.choice.unit ? "--unit" : "--piece",
                      " says which tensors are written, and none are; give --tensors too");
  require<InputError>(!r.choice.piece || *r.choice.piece >= 0, "--piece ", r.choice.piece.value_or(0),
                      ": pieces are counted from 0");
  std::error_code error;
  require<InputError>(!r.digests || !r.against || !std::filesystem::equivalent(*r.digests, *r.against, error),
                      "--digests ", r.digests.value_or(""),
                      " is the file that --against names; give it one of its own");
}

void require_ranks(const RunRecord& recorded, int ranks) {
  const std::string was = value_of(recorded, "ranks");
  require<InputError>(has_pieces(recorded) || was == std::to_string(ranks),
                      "replay: a step of the run is not cut into ", "pieces, so that its bits are those of ", was,
                      was == "1" ? " rank" : " ranks", ", and here are ", ranks, "; take as many (--comm threads:", was,
                      ", or mpirun)");
}

void require_same_bits(const RunRecord& recorded, const RunRecord& now) {
  const bool pieces = has_pieces(recorded);
  for (const auto& [name, is] : now) {
    const auto was = recorded.find(name);
    if (was == recorded.end() || was->second == is || harmless.contains(name) || is_for_replay(name)) continue;
    if (pieces && (name == "ranks" || name == "grad-accum")) continue;
    throw InputError(sentence_of(name, was->second, is));
  }
}

void require_same_course(const checkpoint::TrainerState& before, const checkpoint::TrainerState& after) {
  const auto refuse = [&](bool differs, const std::string& what) {
    require<InputError>(!differs, "replay: between its steps ", before.step, " and ", after.step, " the run's ", what,
                        ", so that nothing tells what each step between read; take a step from before or behind them");
  };
  const auto changed = [&](std::string_view what, const auto& was, const auto& is) {
    refuse(was != is, message(what, " changed from ", was, " to ", is));
  };
  if (before.step > 0) {  // a new run has no recorded values
    changed("--seed", before.seed, after.seed);
    changed("--seq-len", before.seq_len, after.seq_len);
    changed("number of windows", before.windows, after.windows);
    for (const char* const name : {"batch-size", "data", "validation-fraction"})
      if (before.run.contains(name) && after.run.contains(name))
        changed(name == std::string_view("data") ? "data" : message("--", name),
                shortened(value_of(before.run, name), 400), shortened(value_of(after.run, name), 400));
  }
  const std::int64_t batch = parsed<std::int64_t>(value_of(after.run, "batch-size")).value_or(0);
  if (batch <= 0 || after.windows <= 0) return;  // not recorded
  const auto read = [&](const checkpoint::TrainerState& state) { return state.epoch * after.windows + state.index; };
  refuse(read(after) - read(before) != (after.step - before.step) * batch, "order of the data was begun anew");
}

void require_random_start(const ReplayRequest& request, const RunRecord& recorded, std::int64_t candidates) {
  require<InputError>(candidates == 0, "replay: ", request.folder, " has no sound checkpoint before step ",
                      request.step, "; take a step behind one that is");
  require<InputError>(value_of(recorded, "model") == "random weights", "replay: ", request.folder,
                      " has no checkpoint before step ", request.step, ", and the run began with weights that it does ",
                      "not hold; take a step behind its first checkpoint");
}

bool is_for_replay(std::string_view name) { return name.starts_with(prefix); }

RunRecord replay_record(const TrainOptions& options, const PolicyTexts& policies) {
  RunRecord record;
  const auto add = [&](const char* flag, const std::vector<std::string>& values) {
    std::string text;
    for (const std::string& value : values) {
      if (value.empty() || value.find('\n') != std::string::npos) return;
      text += (text.empty() ? "" : "\n") + value;
    }
    if (!text.empty() && text.size() <= most_bytes && is_utf8(text)) record[std::string(prefix) + flag] = text;
  };
  std::vector<std::string> data = options.data;
  std::ranges::transform(data, data.begin(), absolute);
  add("data", data);
  if (!options.text.tokenizer.empty()) add("tokenizer", {absolute(options.text.tokenizer)});
  const std::string& chat = options.text.chat_template;
  add("chat-template", {path_exists(chat) ? absolute(chat) : chat});
  add("end-token", {options.text.end_token});
  add("text-field", {options.text.field});
  add("sharding", {policies.sharding});
  add("precision", {policies.precision});
  add("tiling", {policies.tiling});
  return record;
}

std::vector<std::string> replay_values(const RunRecord& record, std::string_view flag) {
  const auto found = record.find(std::string(prefix) + std::string(flag));
  if (found == record.end()) return {};
  const std::vector<std::string_view> values = split_at(found->second, '\n');
  return {values.begin(), values.end()};
}

}  // namespace fsdp::train
