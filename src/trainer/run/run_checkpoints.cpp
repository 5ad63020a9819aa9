// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/run_checkpoints.hpp>

#include <chrono>
#include <span>
#include <system_error>
#include <utility>

#include <tessera/comm/launch/print.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/file.hpp>
#include <tessera/fsdp/core/hash.hpp>
#include <tessera/fsdp/core/identity.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>
#include <tessera/trainer/run/checkpoint_dir.hpp>
#include <tessera/trainer/run/first_weights.hpp>
#include <tessera/trainer/run/replay_request.hpp>

#include "../../fsdp/checkpoint/trainer_state.hpp"
#include "../../fsdp/core/paths.hpp"
#include "../../fsdp/core/strings.hpp"

namespace fsdp::train {

namespace {

/// Returns the record's text for the weights of a folder, which does not depend on the folder's location. Rank 0
/// samples the files for all ranks. Returns an empty text if the folder does not contain weights.
std::string weights_text(const comm::Ranks& ranks, const std::string& folder) {
  constexpr FileSample sample{.whole = 1 << 20, .blocks = 64};
  const std::string mine = comm::together(ranks, "--model", [&]() -> std::string {
    if (ranks.rank() != 0) return {};
    std::map<std::string, std::uint64_t> digests;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().extension() == ".safetensors" && entry.is_regular_file(error))
        digests[entry.path().filename().string()] = digest_of_file(entry.path(), sample);
    if (digests.empty()) return {};
    std::uint64_t hash = hash_seed;
    for (const auto& [name, digest] : digests) hash = hashed(hashed(hash, name), static_cast<std::int64_t>(digest));
    return "the weights of digest " + digest_text(hash);
  });
  return comm::gather_texts(ranks, mine, "--model").front();
}

/// Adds the initial weights of a run to its record, if they are known: the folder of a resumed run may contain only a
/// config.json.
void record_first_weights(RunRecord& record, const comm::Ranks& ranks, const TrainOptions& options, bool names_folder) {
  const auto add = [&](const char* key, const std::string& folder) {
    if (std::string text = weights_text(ranks, folder); !text.empty()) record[key] = std::move(text);
  };
  if (!names_folder || options.from_scratch) {
    record["model"] = "random weights";
    return;
  }
  add("model", options.model.name);
  if (!options.model.adapter.empty()) add("adapter", options.model.adapter);
}

/// Takes the initial weights from the record of the run that is resumed, whatever this run's --model contains.
void keep_first_weights(RunRecord& record, const RunRecord& then) {
  for (const char* const key : {"model", "adapter"}) {
    record.erase(key);
    if (const auto found = then.find(key); found != then.end()) record.insert(*found);
  }
}

/// Returns the identity of a run: new runs with equal flags, model and data write the same checkpoints.
std::string identity_of(const RunRecord& run) {
  std::uint64_t hash = hash_seed;
  for (const auto& [name, value] : run)
    if (!is_for_replay(name)) hash = hashed(hash, message(name, " = ", value, "\n"));
  return digest_text(hash);
}

}  // namespace

std::int64_t resumed_threads(const comm::Ranks& ranks, const TrainOptions& options,
                             const checkpoint::ReadListing& read) {
  const std::string mine = read_together(ranks, options.launch.disk_deadline_seconds, "--resume", [&]() -> std::string {
    if (ranks.rank() != 0) return {};
    try {
      const std::optional<std::filesystem::path> folder = folder_to_resume(options, read, {});
      if (!folder) return {};
      const checkpoint::Checkpoint from = checkpoint::Checkpoint::open(*folder, read);
      const RunRecord& run = from.state().run;
      return run.contains("pieces") ? value_of(run, "threads") : std::string();
    } catch (const InputError&) {
      return {};  // resuming from it reports the error
    }
  });
  const std::string text = comm::gather_texts(ranks, mine, "--resume").front();
  const std::int64_t threads = parsed<std::int64_t>(text).value_or(0);
  return thread_counts.holds(threads) ? threads : 0;
}

RunCheckpoints::RunCheckpoints(Engine& engine, const TrainOptions& options, CheckpointDir dir)
    : engine_(engine),
      ranks_(engine.ranks()),
      options_(options),
      dir_(std::move(dir)),
      model_(engine.facts().model),
      names_folder_(engine.facts().names_folder),
      run_(engine.facts().record) {}

RunCheckpoints::~RunCheckpoints() = default;

void RunCheckpoints::require_folder() {
  dir_.require_shared(ranks_, options_);
  comm::together(ranks_, "--checkpoint-dir", [&] {
    if (leads() && options_.checkpoint_dir) require_room(options_, model_.listing, model_.states, warn());
  });
}

Loaded RunCheckpoints::load() {
  const bool resumes = options_.resume.has_value();
  const auto load = [&] { return resumes ? resume() : Loaded{.lines = start()}; };
  if (!resumes && !names_folder_ && options_.text.tokenizer.empty()) return load();
  return with_disk_deadline(ranks_, options_.launch.disk_deadline_seconds,
                            message("reading ", resumes ? *options_.resume : options_.model.name, " (--disk-deadline)"),
                            [&] {
                              Loaded loaded = load();
                              comm::together(ranks_, "--checkpoint-dir", [&] { read_side_files(); });
                              return loaded;
                            });
}

/// Resumes from the newest sound checkpoint. If a rank finds a damaged file while reading, all ranks try an older one.
Loaded RunCheckpoints::resume() {
  while (const std::optional<checkpoint::Checkpoint> from = open_agreed()) {
    Resumed found = compare(*from);
    if (restored(*from)) return resumed(*from, std::move(found));
  }
  return fresh(start());
}

/// Loads the initial weights from --model's folder; if it has none, initializes them from the seed. Returns messages
/// for the user.
std::vector<std::string> RunCheckpoints::start() {
  const bool stored = first_weights_are_stored();
  engine_.initialize(options_.seed, stored);
  if (!stored) return random_lines();
  const checkpoint::ModelFiles files =
      open_agreed_model(ranks_, options_.model.name, model_.read_first, warn(), options_.model.adapter);
  comm::together(ranks_, "--model", [&] { engine_.load(files); });
  return stored_lines();
}

void RunCheckpoints::save(checkpoint::TrainerState state) {
  comm::together(ranks_, "finite weights", [&] {
    engine_.require_finite();
    dir_.require_held();
  });
  if (!options_.checkpoint_dir) return;
  state.step = engine_.steps();
  state.skipped_steps = engine_.skipped();
  state.seed = options_.seed;
  state.windows = engine_.facts().training;
  state.seq_len = options_.seq_len;
  state.schedule_steps = options_.steps;
  state.run = run_;
  std::uint64_t id = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  ranks_.broadcast(std::as_writable_bytes(std::span(&id, 1)), 0, {"checkpoint"});
  checkpoint::Save save(*options_.checkpoint_dir, state.step, id, model_.listing, model_.states, side_files_);
  with_disk_deadline(ranks_, options_.launch.disk_deadline_seconds,
                     message("saving to --checkpoint-dir ", *options_.checkpoint_dir, " (--disk-deadline)"), [&] {
                       checkpoint::save(save, ranks_, state, [&](checkpoint::Save& file) { engine_.write(file); });
                       if (leads()) remove_older(options_, state.step, spared(state), warn());
                       ranks_.barrier({"checkpoint"});
                     });
  path_ = save.path().string();
  saved_step_ = state.step;
}

checkpoint::Warn RunCheckpoints::warn() const {
  return [this](const std::string& text) {
    if (leads()) print_warning(text);
  };
}

std::filesystem::path RunCheckpoints::path_of(std::int64_t step) const {
  return std::filesystem::path(*options_.checkpoint_dir) / checkpoint::step_name(step);
}

/// Returns the checkpoints that --keep must not remove: the one resumed from, and the best.
std::array<std::filesystem::path, 2> RunCheckpoints::spared(const checkpoint::TrainerState& state) const {
  return {resumed_from_.value_or(""), state.best ? path_of(state.best->step) : std::filesystem::path()};
}

/// Opens the checkpoint that rank 0 chooses on every rank, so that all ranks use the same one. Returns nothing if
/// --resume auto finds none. Skips checkpoints in `damaged_`, like incomplete ones.
std::optional<checkpoint::Checkpoint> RunCheckpoints::open_agreed() {
  const checkpoint::ReadListing read = [this](const std::filesystem::path& folder) {
    const auto damaged = damaged_.find(folder.string());
    if (damaged != damaged_.end()) throw InputError(damaged->second);
    return model_.read(folder);
  };
  const auto open = [&](const std::filesystem::path& path) { return checkpoint::Checkpoint::open(path, read, warn()); };
  const std::string mine = comm::together(ranks_, "--resume", [&]() -> std::string {
    if (!leads()) return {};
    const auto found = folder_to_resume(options_, read, warn());
    return found ? open(*found).path().string() : std::string();
  });
  const std::filesystem::path chosen = comm::gather_texts(ranks_, mine, "--resume").front();
  if (chosen.empty()) return std::nullopt;
  checkpoint::Checkpoint from = comm::together(ranks_, "--resume", [&] { return open(chosen); });
  checkpoint::agree_on_folder(ranks_, chosen);
  return from;
}

/// Compares the run of a checkpoint with this one.
Resumed RunCheckpoints::compare(const checkpoint::Checkpoint& from) {
  from.check_same_model(model_.listing);
  record_first_weights(run_, ranks_, options_, names_folder_);
  Resumed found = compare_with(from.path().string(), from.state(), run_, options_, engine_.facts().training);
  found.identity = comm::together(ranks_, "--checkpoint-dir", [&] {
    return leads() ? resumed_identity(options_, from, identity_of(run_)) : std::string();
  });
  return found;
}

/// Applies a checkpoint's state to this run.
Loaded RunCheckpoints::resumed(const checkpoint::Checkpoint& from, Resumed found) {
  checkpoint::TrainerState state = from.state();
  state.epoch = found.position.epoch;
  state.index = found.position.index;
  run_[checkpoint::run_identity] = found.identity;
  keep_first_weights(run_, state.run);
  if (leads())
    if (std::string line = later_steps(options_, from); !line.empty()) found.lines.push_back(std::move(line));
  if (!found.warning.empty()) warn()(found.warning);
  resumed_from_ = from.path();
  return {.lines = std::move(found.lines), .resumed = std::move(state)};
}

/// Returns the message that --resume auto found no checkpoint, followed by the lines of `start`.
Loaded RunCheckpoints::fresh(std::vector<std::string> lines) const {
  lines.insert(lines.begin(),
               message("--resume auto: ", *options_.checkpoint_dir, " holds no checkpoint; a fresh start"));
  return {.lines = std::move(lines)};
}

/// Records the initial weights of a new run. Returns whether --model's folder has weights, on which all ranks must
/// agree.
bool RunCheckpoints::first_weights_are_stored() {
  record_first_weights(run_, ranks_, options_, names_folder_);
  run_.try_emplace("model", "random weights");
  run_[checkpoint::run_identity] = identity_of(run_);
  if (!names_folder_) return false;
  const bool stored = comm::together(
      ranks_, "--model", [&] { return starts_from_folder(options_, names_folder_, model_.listing.lora.has_value()); });
  comm::agree_on_opened(ranks_, message("--model ", options_.model.name, stored ? " has weights\n" : " has none\n"));
  return stored;
}

std::vector<std::string> RunCheckpoints::random_lines() const {
  const std::string &folder = options_.model.name, &adapter = options_.model.adapter;
  if (!names_folder_) return {};
  return {options_.from_scratch ? message("weights   random, since --from-scratch leaves those of ", folder,
                                          adapter.empty() ? "" : " and of ", adapter)
                                : message("weights   random, since ", folder, " holds none")};
}

/// If --model's folder is a checkpoint, returns a line about the parts of it that the run does not use.
std::vector<std::string> RunCheckpoints::stored_lines() const {
  const std::filesystem::path file = std::filesystem::path(options_.model.name) / checkpoint::trainer_name;
  if (!leads() || !path_exists(file)) return {};
  std::string step;
  try {
    step = message("step ", checkpoint::read_trainer_file(file, {}).state.step, " of ");
  } catch (const InputError&) {  // resuming from it would report the error
  }
  return {message("weights   of ", step, "a run; its optimizer states and its step are not used (--resume uses them)")};
}

/// Reads the side files to copy into checkpoints: the files of --tokenizer first, then those of the resumed checkpoint,
/// then those of --model's folder.
void RunCheckpoints::read_side_files() {
  if (!leads() || !options_.checkpoint_dir) return;
  if (resumed_from_) side_files_ = checkpoint::read_side_files(*resumed_from_, warn());
  if (!options_.text.tokenizer.empty()) {
    checkpoint::SideFiles files = checkpoint::read_tokenizer_files(options_.text.tokenizer, warn());
    files.merge(side_files_);
    side_files_ = std::move(files);
  }
  if (names_folder_) side_files_.merge(checkpoint::read_side_files(options_.model.name, warn()));
}

/// Restores a checkpoint on every rank. Returns false if a rank found damage: the checkpoint is then skipped.
bool RunCheckpoints::restored(const checkpoint::Checkpoint& from) {
  const std::string mine = comm::together(ranks_, "--resume", [&]() -> std::string {
    try {
      engine_.restore(from);
      return {};
    } catch (const DamageError& damage) {
      return damage.what();
    }
  });
  for (const std::string& text : comm::gather_texts(ranks_, mine, "--resume")) {
    if (text.empty()) continue;
    damaged_[from.path().string()] = text;
    return false;
  }
  return true;
}

}  // namespace fsdp::train
