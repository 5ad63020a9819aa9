// SPDX-License-Identifier: Apache-2.0
/// @file
/// The checkpoints of one run: where its weights come from, and where they are saved.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <comm/collectives.hpp>
#include <fsdp/checkpoint/directory_lock.hpp>
#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/core/file.hpp>
#include <fsdp/data/sampler.hpp>
#include <fsdp/models/model.hpp>
#include <fsdp/precision/loss_scale.hpp>
#include <fsdp/train/agreement.hpp>
#include <fsdp/train/checkpoint_dir.hpp>
#include <fsdp/train/model_choice.hpp>
#include <fsdp/train/options.hpp>
#include <fsdp/train/peers.hpp>
#include <fsdp/train/resumed.hpp>
#include <fsdp/train/shards_io.hpp>
#include <fsdp/train/training.hpp>

namespace fsdp::train {

/// What a run has done, beside its weights and optimizer state.
struct Progress {
  data::Position position = {};  ///< where the data go on
  std::int64_t tokens = 0;       ///< seen in all steps
  std::optional<DynamicLossScale::State> loss_scale = {};
  std::optional<checkpoint::BestLoss> best = {};  ///< with --patience
};

/// Weights, and how they were come by.
struct Loaded {
  std::vector<std::string> lines = {};   ///< what a person should know
  std::optional<Progress> resumed = {};  ///< nothing where the run begins
};

/// Collective: each call is made by all ranks, and an error of one is thrown on all.
template <fsdp::Model Model, class Optimizer>
class RunCheckpoints {
 public:
  using Comm = typename Model::Stack::Comm;

  /// `run`: what the run was told; `windows`: those it trains on. References must outlive it.
  RunCheckpoints(Comm& communicator, const TrainOptions& options, const Model& model,
                 Training<Model, Optimizer>& training, RunRecord run, std::int64_t windows)
      : communicator_(communicator),
        options_(options),
        model_(model),
        training_(training),
        run_(std::move(run)),
        windows_(windows) {
    on_all_ranks(communicator, "--checkpoint-dir", [&] {
      if (leads()) require_writable(options_.checkpoint_dir);
    });
  }

  /// Locks --checkpoint-dir until the end of this object. Throws InputError where it is another run's or has no room.
  void lock() {
    on_all_ranks(communicator_, "--checkpoint-dir", [&] {
      if (!leads() || options_.checkpoint_dir.empty()) return;
      lock_.emplace(options_.checkpoint_dir, warn());
      require_room(options_, checkpoint::listing_of(model_), states(), warn());
    });
  }

  /// Weights and optimizer state from --resume, or a run's first weights. Ranks wait for one whose disk is slow.
  Loaded load() {
    const bool resumes = !options_.resume.empty();
    if (!resumes && !names_folder() && options_.text.tokenizer.empty()) return {.lines = start()};
    Loaded loaded;
    with_disk_deadline(communicator_, options_.launch.disk_deadline_seconds,
                       message("reading ", resumes ? options_.resume : options_.model.name, " (--disk-deadline)"), [&] {
                         loaded = resumes ? resume() : Loaded{.lines = start()};
                         on_all_ranks(communicator_, "--checkpoint-dir", [&] { read_side_files(); });
                       });
    return loaded;
  }

  /// Whether the step that was made last is saved.
  bool saved() { return saved_step_ == optimizer().steps(); }
  /// The folder of the last one; empty before it.
  const std::string& path() const { return path_; }

  /// Saves the run as it is now, where there is a --checkpoint-dir. Throws DivergedError where a weight or an optimizer
  /// state is not finite, with a --checkpoint-dir or without.
  void save(const Progress& progress) {
    on_all_ranks(communicator_, "finite weights", [&] { require_finite(training_.module(), optimizer()); });
    if (options_.checkpoint_dir.empty()) return;
    std::uint64_t id = static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
    comm::broadcast(communicator_, std::as_writable_bytes(std::span(&id, 1)), 0, {"checkpoint"});
    const checkpoint::TrainerState state = state_after(progress);
    checkpoint::Save save(options_.checkpoint_dir, state.step, id, checkpoint::listing_of(model_), states(),
                          side_files_);
    with_disk_deadline(communicator_, options_.launch.disk_deadline_seconds,
                       message("saving to --checkpoint-dir ", options_.checkpoint_dir, " (--disk-deadline)"), [&] {
                         checkpoint::save(save, peers_of(communicator_), state, [&](checkpoint::Save& file) {
                           write_shards(training_.module(), optimizer(), file);
                         });
                         if (leads()) remove_older(options_, state.step, spared(state), warn());
                         comm::barrier(communicator_, {"checkpoint"});
                       });
    path_ = save.path().string();
    saved_step_ = state.step;
  }

 private:
  auto& optimizer() { return training_.optimizer(); }
  bool leads() const { return communicator_.rank() == 0; }
  checkpoint::Warn warn() const {
    return [this](const std::string& text) {
      if (leads()) std::fprintf(stderr, "tessera: warning: %s\n", text.c_str());
    };
  }
  checkpoint::OptimizerStates states() { return states_of(training_.module(), optimizer().optimizer()); }

  std::filesystem::path path_of(std::int64_t step) const {
    return std::filesystem::path(options_.checkpoint_dir) / checkpoint::step_name(step);
  }
  /// What --keep leaves besides the newest.
  std::array<std::filesystem::path, 2> spared(const checkpoint::TrainerState& state) const {
    return {resumed_from_.value_or(""), state.best ? path_of(state.best->step) : std::filesystem::path()};
  }

  checkpoint::TrainerState state_after(const Progress& progress) {
    return {.step = optimizer().steps(),
            .tokens = progress.tokens,
            .epoch = progress.position.epoch,
            .index = progress.position.index,
            .seed = options_.seed,
            .windows = windows_,
            .seq_len = options_.seq_len,
            .schedule_steps = options_.steps,
            .skipped_steps = optimizer().control().skipped(),
            .loss_scale = progress.loss_scale,
            .best = progress.best,
            .run = run_};
  }

  /// The checkpoint that rank 0 finds, opened by every rank: no rank falls back to another one alone. Nothing where
  /// --resume auto finds none. One that was found to be damaged is skipped as an incomplete one is.
  std::optional<checkpoint::Checkpoint> open_agreed() {
    const checkpoint::ReadListing read = [this](const std::filesystem::path& folder) {
      const auto damaged = damaged_.find(folder.string());
      if (damaged != damaged_.end()) throw InputError(damaged->second);
      return checkpoint::read_listing<Model>(folder);
    };
    const auto open = [&](const std::filesystem::path& path) {
      return checkpoint::Checkpoint::open(path, read, warn());
    };
    const std::string mine = on_all_ranks(communicator_, "--resume", [&]() -> std::string {
      if (!leads()) return {};
      const auto found = folder_to_resume(options_, read, warn());
      return found ? open(*found).path().string() : std::string();
    });
    const std::filesystem::path chosen = gather_texts(communicator_, mine, "--resume").front();
    if (chosen.empty()) return std::nullopt;
    checkpoint::Checkpoint from = on_all_ranks(communicator_, "--resume", [&] { return open(chosen); });
    agree_on_folder(communicator_, chosen);
    return from;
  }

  /// The newest sound step: where a rank finds while reading that a file is not what was written, all take an older
  /// one.
  Loaded resume() {
    while (const std::optional<checkpoint::Checkpoint> from = open_agreed()) {
      from->check_same_model(checkpoint::listing_of(model_));
      const checkpoint::TrainerState& state = from->state();
      Resumed found = compare_with(from->path().string(), state, run_, options_, windows_);
      const std::string damage = restore_agreed(*from);
      if (!damage.empty()) {
        damaged_[from->path().string()] = damage;
        continue;
      }
      resumed_from_ = from->path();
      return {
          .lines = std::move(found.lines),
          .resumed = Progress{
              .position = found.position, .tokens = state.tokens, .loss_scale = state.loss_scale, .best = state.best}};
    }
    Loaded fresh{.lines = {message("--resume auto: ", options_.checkpoint_dir, " holds no checkpoint; a fresh start")}};
    for (const std::string& line : start()) fresh.lines.push_back(line);
    return fresh;
  }

  bool names_folder() const { return is_folder<typename Model::Config>(options_.model); }

  /// A run's first weights: those of the folder that --model names, or, where it has none, of the seed. Returns what
  /// the user should know.
  std::vector<std::string> start() {
    const std::string& folder = options_.model.name;
    if (names_folder()) {
      const bool stored = !options_.from_scratch && checkpoint::holds_weights(folder);
      agree_on_opened(communicator_, message("--model ", folder, stored ? " has weights\n" : " has none\n"));
      if (stored) {
        optim::initialize(training_.module(), options_.seed, optim::Begin::adapters);
        load_agreed_weights(communicator_, training_.module(), folder, warn(), options_.model.adapter);
        return {};
      }
    }
    training_.initialize(options_.seed);
    if (!names_folder()) return {};
    return {options_.from_scratch ? message("weights   random, since --from-scratch leaves those of ", folder)
                                  : message("weights   random, since ", folder, " holds none")};
  }

  /// Checkpoints carry on what came with the model: in the one that was resumed from, or else in --model's folder, and
  /// another tokenizer than that one's.
  void read_side_files() {
    if (!leads() || options_.checkpoint_dir.empty()) return;
    if (resumed_from_) side_files_ = checkpoint::read_side_files(*resumed_from_, warn());
    if (!options_.text.tokenizer.empty()) {
      checkpoint::SideFiles files = checkpoint::read_tokenizer_files(options_.text.tokenizer, warn());
      files.merge(side_files_);
      side_files_ = std::move(files);
    }
    if (names_folder()) side_files_.merge(checkpoint::read_side_files(options_.model.name, warn()));
  }

  /// Reads it on every rank. Returns what the first rank that found damage says of it, or nothing.
  std::string restore_agreed(const checkpoint::Checkpoint& from) {
    const std::string mine = on_all_ranks(communicator_, "--resume", [&]() -> std::string {
      try {
        restore(training_.module(), optimizer(), from);
        return {};
      } catch (const DamageError& damage) {
        return damage.what();
      }
    });
    for (const std::string& text : gather_texts(communicator_, mine, "--resume"))
      if (!text.empty()) return text;
    return {};
  }

  Comm& communicator_;
  const TrainOptions& options_;
  const Model& model_;
  Training<Model, Optimizer>& training_;
  RunRecord run_;
  std::int64_t windows_;
  std::optional<checkpoint::DirectoryLock> lock_;  ///< rank 0's
  std::map<std::string, std::string> damaged_;     ///< why, by folder
  std::optional<std::filesystem::path> resumed_from_;
  checkpoint::SideFiles side_files_;  ///< rank 0's
  std::string path_;
  std::int64_t saved_step_ = -1;
};

}  // namespace fsdp::train
