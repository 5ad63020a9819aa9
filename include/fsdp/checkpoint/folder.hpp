// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints: `<dir>/step-00001000/` with config.json, model.safetensors, optimizer.safetensors, trainer.json and
/// manifest.json, which has the checksums of the others (docs/checkpoints.md), and with what else came with the model.
///
/// A checkpoint is written beside, as `step-00001000.tmp-<id>`, synced and renamed: it is there whole or not at all.
/// `<dir>/latest` holds the newest one's name, as a hint. Nothing in it depends on the number of ranks.
/// Not here: who owns which range, and how ranks agree; the trainer passes both in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/checkpoint/safetensors.hpp>
#include <fsdp/checkpoint/side_files.hpp>
#include <fsdp/precision/loss_scale.hpp>

namespace fsdp::checkpoint {

/// The lowest held-out loss of a run so far.
struct BestLoss {
  double loss = 0;
  std::int64_t step = 0;   ///< after which it was measured
  std::int64_t worse = 0;  ///< measured since, none of them lower

  friend bool operator==(const BestLoss&, const BestLoss&) = default;
};

/// What a run needs beside weights and moments to go on as if it had never stopped.
struct TrainerState {
  std::int64_t step = 0;            ///< steps done; also the position in the learning-rate schedule
  std::int64_t tokens = 0;          ///< seen in all steps
  std::int64_t epoch = 0;           ///< of the data
  std::int64_t index = 0;           ///< windows of this epoch that were used
  std::uint64_t seed = 0;           ///< of data order and initial weights
  std::int64_t windows = 0;         ///< training windows; another number means other data
  std::int64_t seq_len = 0;         ///< tokens per window
  std::int64_t schedule_steps = 0;  ///< the run's --steps: the schedule's length
  std::int64_t skipped_steps = 0;   ///< of `step`: they changed no weight
  std::optional<DynamicLossScale::State> loss_scale = {};
  std::optional<BestLoss> best = {};
  std::map<std::string, std::string> run = {};  ///< what the run was told, by name; empty where it is not known

  friend bool operator==(const TrainerState&, const TrainerState&) = default;
};

/// What an optimizer keeps: the names of each parameter's states. A state is float and has its parameter's shape.
struct OptimizerStates {
  std::string optimizer = "adamw";                                       ///< its name
  std::map<std::string, std::vector<std::string>, std::less<>> of = {};  ///< by parameter; in the optimizer's order
};

/// A checkpoint being written by all ranks. Made on every rank with equal arguments; nothing touches the disk until
/// `create`. If the object of the rank that created is destroyed before `commit`, nothing remains on disk.
class Save {
 public:
  /// `id`: a number on which the ranks agree; runs that share `dir` at the same time need different ones. `side_files`
  /// are those of rank 0, which writes them.
  Save(std::filesystem::path dir, std::int64_t step, std::uint64_t id, const ModelListing& model,
       const OptimizerStates& states, SideFiles side_files = {});
  Save(Save&&) = delete;
  ~Save();

  const std::vector<NamedShape>& parameters() const { return parameters_; }  ///< the order of `parameter` below
  /// A parameter's place among them.
  std::size_t place_of(const std::string& name) const;

  void create();  ///< rank 0: folder, config.json and both files at full size
  void join();    ///< the others, after `create`
  /// Elements [begin, begin + values.size()) of a parameter,
  void write_weight(std::size_t parameter, std::int64_t begin, std::span<const float> values);
  /// and of one of its states, by its place among them.
  void write_state(std::size_t parameter, std::size_t state, std::int64_t begin, std::span<const float> values);
  /// Every rank, after its writes. Returns this rank's shares of the files' checksums, for rank 0 only to read.
  std::string sync();
  /// Rank 0, after every rank's `sync`, with what it returned.
  void commit(const TrainerState& state, std::span<const std::string> shares);
  void abort() noexcept;  ///< removes what was written and not committed

  std::filesystem::path path() const { return dir_ / name_; }  ///< of the finished checkpoint

 private:
  std::filesystem::path dir_, temporary_;
  std::string name_, config_text_;
  std::vector<NamedShape> parameters_;
  std::map<std::string, std::size_t> places_;  // of parameters
  std::string optimizer_name_;
  std::vector<std::size_t> first_state_;  // [parameters]: its first tensor in the optimizer's file
  FilePlan model_plan_, optimizer_plan_;
  SideFiles side_files_;
  std::optional<SharedFile> model_, optimizer_;
  bool created_ = false;
};

/// The ranks that save together; as it stands, one alone.
struct Peers {
  int rank = 0;
  /// Tells every rank whether all of them were ok.
  std::function<bool(bool)> all = [](bool ok) { return ok; };
  /// Every rank's text, in rank order, on rank 0 at least.
  std::function<std::vector<std::string>(std::string)> gather = [](std::string text) { return std::vector{text}; };
};

/// Runs a save on one rank; `write_mine` calls Save::write for this rank's ranges. If any rank fails, every rank throws
/// and nothing is left.
void save(Save& checkpoint, const Peers& peers, const TrainerState& state,
          const std::function<void(Save&)>& write_mine);

/// The folder of a step: "step-00000012".
std::string step_name(std::int64_t step);

/// Removes all but the `keep` newest checkpoints of steps up to `newest`. Those of `spared` stay besides.
void remove_older(const std::filesystem::path& dir, std::int64_t newest, std::int64_t keep,
                  std::span<const std::filesystem::path> spared = {});

/// Throws InputError where the disk of `dir`, or of the closest folder above it that is there, lacks the room for a
/// checkpoint; warns where it has less than `kept` of them take.
void require_room(const std::filesystem::path& dir, const ModelListing& model, const OptimizerStates& states,
                  std::int64_t kept, const Warn& warn);

/// The newest sound checkpoint in a directory; incomplete and damaged ones are skipped with a warning. Throws
/// InputError where the system refuses to read one: a disk that fails does not make a run fall back.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& dir, const ReadListing& read,
                                                 const Warn& warn = {});

/// Whether a directory has a finished checkpoint's folder in it, complete or not.
bool holds_any(const std::filesystem::path& dir);

/// A checkpoint opened to resume from.
class Checkpoint {
 public:
  /// `path`: a step's folder (an unsound one is an error), or a directory of them (the newest sound one).
  static Checkpoint open(std::filesystem::path path, const ReadListing& read, const Warn& warn = {});

  /// The step's folder.
  const std::filesystem::path& path() const { return path_; }
  /// Tensors of the model that it holds.
  const ModelListing& model() const { return model_.listing; }
  /// Step, position in the data, seed and what the run was told.
  const TrainerState& state() const { return state_; }

  /// Throws InputError naming the first tensor (name, both shapes) or value that differs from `model`.
  void check_same_model(const ModelListing& model) const;

  /// Throws InputError where another optimizer wrote it, or a state is missing or has another shape.
  void check_same_optimizer(const OptimizerStates& states) const;

  /// Elements [begin, begin + count) of a parameter, to the bit as they were written,
  void read_weight(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const;
  /// and of one of its states.
  void read_state(const std::string& name, std::string_view state, std::int64_t begin, std::int64_t count,
                  float* out) const;

 private:
  Checkpoint(std::filesystem::path path, ModelFiles model, SafetensorsFile optimizer, std::string optimizer_name,
             const TrainerState& state)
      : path_(std::move(path)),
        model_(std::move(model)),
        optimizer_(std::move(optimizer)),
        optimizer_name_(std::move(optimizer_name)),
        state_(state) {}

  std::filesystem::path path_;
  ModelFiles model_;
  SafetensorsFile optimizer_;
  std::string optimizer_name_;
  TrainerState state_;
};

}  // namespace fsdp::checkpoint
