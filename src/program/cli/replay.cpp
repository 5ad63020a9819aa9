// SPDX-License-Identifier: Apache-2.0
#include "replay.hpp"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <utility>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/trainer/flags/flags.hpp>

#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/strings.hpp"
#include "listed.hpp"

namespace fsdp::cli {
namespace {

using checkpoint::Checkpoint;

/// Opens a valid checkpoint; returns nothing, with a warning, for an invalid one.
std::optional<Checkpoint> saved_in(const std::filesystem::path& path, std::vector<std::string>& warnings) {
  try {
    return Checkpoint::open(path, checkpoint::read_listing<Listed>);
  } catch (const InputError& error) {
    const auto* const unread = dynamic_cast<const FileError*>(&error);
    if (unread != nullptr && !unread->absent()) throw;
    warnings.push_back(message("skipping ", path.string(), ": ", error.what()));
    return std::nullopt;
  }
}

/// Returns the record of the next checkpoint, since a resumed run may change flags, or else of the previous one.
Checkpoint saved_around(const std::string& folder, std::int64_t step, std::vector<std::string>& warnings) {
  require_folder(folder);
  require<InputError>(!path_exists(std::filesystem::path(folder) / "trainer.json"), "replay: ", folder,
                      " is one checkpoint; give the folder that holds it");
  const std::vector<checkpoint::StepFolder> steps = checkpoint::step_folders_in(folder);  // newest first
  require<InputError>(!steps.empty(), "replay: ", folder, " holds no checkpoint; give the run's --checkpoint-dir");
  const auto before = std::ranges::find_if(steps, [&](const auto& each) { return each.step < step; });
  for (auto after = std::make_reverse_iterator(before); after != steps.rend(); ++after)
    if (auto saved = saved_in(after->path, warnings)) return *std::move(saved);
  for (auto at = before; at != steps.end(); ++at)
    if (auto saved = saved_in(at->path, warnings)) return *std::move(saved);
  throw InputError(message("replay: ", folder, " holds no sound checkpoint"));
}

/// Sets flags to their values in a record.
void set_recorded(const train::FlagSet& flags, const train::RunRecord& record) {
  for (const train::Flag& flag : flags.flags()) {
    const std::string text = train::value_of(record, flag.name);
    if (text.empty()) continue;
    std::vector<std::string> values = {text};
    const std::vector<std::string_view> parts = split_at(text, flag.between);
    // Record_of joins the values of a list
    if (flag.kind == train::FlagKind::list) values.assign(parts.begin(), parts.end());
    flag.give(values);
  }
}

std::int64_t number_of(const train::RunRecord& record, const char* name) {
  return parsed<std::int64_t>(train::value_of(record, name)).value_or(0);
}

/// Returns the recorded value of an entry for replay. Throws InputError if there is none.
std::string recorded(const Checkpoint& saved, const char* name) {
  const std::vector<std::string> values = train::replay_values(saved.state().run, name);
  require<InputError>(values.size() == 1, "replay: ", saved.path().string(), " does not record its --", name,
                      ", as checkpoints of earlier versions; only runs of this version can be replayed");
  return values.front();
}

/// Returns the strategy to compute with: the run's, or a given one with bit-identical results.
ShardingChoice sharding_of(const Replay& command, const ShardingChoice& of_run) {
  if (!command.sharding) return of_run;
  ShardingChoice given = *command.sharding;
  given.layout = of_run.layout;
  const int pieces = pieces_of(of_run);
  if (pieces == 0) {
    given.units = of_run.units;
    require<InputError>(given == of_run, "--sharding ", to_text(given),
                        ": the run's steps are not cut into pieces, so ",
                        "that replay takes its ranks and its strategy, ", to_text(of_run), "; leave --sharding out");
  }
  require<InputError>(pieces_of(given) == pieces, "--sharding ", to_text(given), ": the run cut a step into ", pieces,
                      " pieces (--sharding ", to_text(of_run), "); give a strategy with as many");
  return given;
}

}  // namespace

StackChoice recorded_stack(const std::string& sharding, const std::string& precision, const std::string& tiling) {
  StackChoice stack;
  constexpr std::string_view key = ":offload=";  // last in the text of an Offload
  const std::size_t offload = sharding.rfind(key);
  if (offload != std::string::npos) from_text("offload", sharding.substr(offload + key.size()), stack.offload);
  stack.sharding = parse_whole_sharding(std::string_view(sharding).substr(0, offload));
  const std::size_t floats = precision.rfind("+fp32");
  stack.has_float_weights = floats != std::string::npos;
  from_text("precision", precision.substr(0, floats), stack.precision);
  from_text("tiling", tiling, stack.tiling);
  return stack;
}

RecordedRun recorded_run(const Replay& command, bool by_launcher, std::vector<std::string>& warnings) {
  const Checkpoint saved = saved_around(command.request.folder, command.request.step, warnings);
  const train::RunRecord& record = saved.state().run;
  RecordedRun run{.request = command.request};
  train::TrainOptions& options = *run.options;
  train::FlagSet optimizer;
  bind(run.options.flags, options);
  set_recorded(run.options.flags, record);
  bind(optimizer, run.optimizer);
  set_recorded(optimizer, record);

  run.stack = recorded_stack(recorded(saved, "sharding"), recorded(saved, "precision"), recorded(saved, "tiling"));
  run.stack.sharding = sharding_of(command, run.stack.sharding);
  const bool pieces = pieces_of(run.stack.sharding) > 0;
  const std::int64_t fewest = std::lcm<std::int64_t>(options.sequence.ranks, fewest_ranks(run.stack.sharding));
  const std::int64_t ranks = pieces ? fewest : number_of(record, "ranks");
  run.stack.comm = command.comm.value_or(CommChoice{.ranks = by_launcher ? 1 : std::max<std::int64_t>(ranks, 1)});

  options.launch = command.launch;
  options.launch.threads = number_of(record, "threads");
  options.from_scratch = false;
  if (pieces) options.grad_accum = 1;  // pieces determine the number of micro-batches
  options.model.name = saved.path().string();
  options.data = command.data.empty() ? train::replay_values(record, "data") : command.data;
  require<InputError>(!options.data.empty(), "replay: ", saved.path().string(),
                      " does not record where the run's data are; give them by --data");
  const auto text_of = [&](const char* name, std::string& text) {
    if (const auto values = train::replay_values(record, name); !values.empty()) text = values.front();
  };
  options.text.tokenizer = command.tokenizer;
  if (command.tokenizer.empty() && !path_exists(saved.path() / "tokenizer.json"))
    text_of("tokenizer", options.text.tokenizer);
  text_of("chat-template", options.text.chat_template);
  text_of("end-token", options.text.end_token);
  text_of("text-field", options.text.field);
  options.text.cache = command.token_cache;
  run.record = record;
  if (saved.state().step >= command.request.step) run.after = saved.state();
  return run;
}

}  // namespace fsdp::cli
