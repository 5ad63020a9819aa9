// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints: folders `<dir>/step-00001000/` with config.json, model.safetensors, optimizer.safetensors,
/// trainer.json, other files that came with the model, and manifest.json with the checksums of all other files
/// (docs/checkpoints.md).
///
/// A checkpoint is written to `step-00001000.tmp-<id>`, synced, then renamed: it appears complete or not at all. The
/// file `<dir>/latest` contains the name of the newest checkpoint, as a hint. The contents do not depend on the number
/// of ranks. Not here: which rank owns which range; the trainer passes it in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/checkpoint/listing.hpp>
#include <tessera/fsdp/checkpoint/safetensors.hpp>
#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/optim/state.hpp>
#include <tessera/fsdp/precision/codec.hpp>
#include <tessera/fsdp/precision/policies.hpp>

namespace fsdp::checkpoint {

/// The lowest held-out loss of a run so far.
struct BestLoss {
  double loss = 0;
  std::int64_t step = 0;   ///< step after which `loss` was measured
  std::int64_t worse = 0;  ///< number of losses measured since then, none of them lower

  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    visitor("loss", self.loss);
    visitor("step", self.step);
    visitor("worse", self.worse);
  }
  friend bool operator==(const BestLoss&, const BestLoss&) = default;
};

/// The state that a run needs in addition to weights and optimizer states to continue as if it had never stopped.
/// `visit` lists the fields of trainer.json in their order.
struct TrainerState {
  std::int64_t step = 0;            ///< steps done; also the position in the learning-rate schedule
  std::int64_t tokens = 0;          ///< number of tokens seen in all steps
  std::int64_t epoch = 0;           ///< current epoch of the data
  std::int64_t index = 0;           ///< number of windows of this epoch that were used
  std::uint64_t seed = 0;           ///< seed of the data order and of the initial weights
  std::int64_t windows = 0;         ///< number of training windows; a different number means different data
  std::int64_t seq_len = 0;         ///< tokens per window
  std::int64_t schedule_steps = 0;  ///< the run's --steps: the schedule's length
  std::int64_t skipped_steps = 0;   ///< number of steps, out of `step`, that were skipped without changing a weight
  /// If orders train different groups: the number of steps that changed each class of groups
  /// (optim::StepControl::taken).
  std::vector<std::int64_t> taken = {};
  std::optional<DynamicLossScale::State> loss_scale = {};
  std::optional<BestLoss> best = {};
  std::map<std::string, std::string> run = {};  ///< options of the run by name, and its identity; empty if unknown

  /// Calls visitor(name, value) for required fields, and visitor(name, value, "what it must hold") for fields that are
  /// omitted if empty. `visitor.has(name, written)` returns `written` in a writer, and whether the field is present in
  /// a reader.
  template <class Self, class Visitor>
  static void visit(Self& self, Visitor&& visitor) {
    // True if a trainer wrote the state; other programs have no position in its data
    const bool trains = self.seq_len > 0;
    const bool has_data = visitor.has("seq_len", trains) || visitor.has("seed", trains);
    if (has_data) visitor("seed", self.seed);
    visitor("step", self.step);
    if (has_data) {
      visitor("tokens", self.tokens);
      visitor("epoch", self.epoch);
      visitor("index", self.index);
      visitor("windows", self.windows);
      visitor("seq_len", self.seq_len);
      visitor("schedule_steps", self.schedule_steps);
    }
    visitor("skipped_steps", self.skipped_steps);
    visitor("loss_scale", self.loss_scale, "a scale and a number of sound_steps");
    visitor("best", self.best, "a loss, a step and a number of worse ones");
    visitor("taken", self.taken, "numbers of steps");
    visitor("run", self.run, "texts");
  }
  friend bool operator==(const TrainerState&, const TrainerState&) = default;
};

/// Name and format of a state of a parameter.
struct StoredState {
  std::string name = {};
  const optim::StateFormat* format = &optim::state_format<Plain<float>>;
};

/// The optimizer states of each parameter.
struct OptimizerStates {
  std::string optimizer = "adamw";  ///< the optimizer's name
  /// States by parameter, in the optimizer's order.
  std::map<std::string, std::vector<StoredState>, std::less<>> of = {};
  /// Parameters without states; a later run may train them, starting from states of zero.
  std::set<std::string> frozen = {};
};

/// A checkpoint that all ranks write together. Construct it on every rank with equal arguments; the constructor does
/// not touch the disk. If rank 0's object is destroyed before `commit`, the files on disk are removed.
class Save {
 public:
  /// `id`: a number that is the same on all ranks; runs that use `dir` at the same time need different ids.
  /// `side_files`: files to write; only rank 0's are used.
  Save(std::filesystem::path dir, std::int64_t step, std::uint64_t id, const Listing& model,
       const OptimizerStates& states, SideFiles side_files = {});
  Save(Save&&) = delete;
  ~Save();

  /// All parameters; `parameter` below is an index into them.
  const std::vector<NamedShape>& parameters() const { return parameters_; }
  std::size_t place_of(const std::string& name) const;  ///< index in parameters()
  void create();  ///< on rank 0: creates the folder, config.json and both tensor files at full size
  void join();    ///< on the other ranks, after `create`: opens the files
  /// Writes elements [begin, begin + values.size()) of a parameter.
  void write_weight(std::size_t parameter, std::int64_t begin, std::span<const float> values);
  /// Writes bytes of a state of the parameter, from byte `first` of the whole state on. `state`: its index in the order
  /// of OptimizerStates.
  void write_state(std::size_t parameter, std::size_t state, std::int64_t first, std::span<const std::byte> bytes);
  /// On every rank, after its writes: syncs the files to disk and closes them. Returns this rank's shares of the files'
  /// checksums as binary data for `commit`.
  std::string sync();
  /// Returns the content of trainer.json. Throws InputError for values that JSON cannot represent.
  std::string trainer_text(const TrainerState& state) const;
  /// On rank 0, after every rank's `sync`: writes trainer.json and manifest.json, then renames the folder. `shares`:
  /// the result of `sync` on each rank.
  void commit(const TrainerState& state, std::span<const std::string> shares);
  void abort() noexcept;                                       ///< removes all files of an uncommitted checkpoint
  std::filesystem::path path() const { return dir_ / name_; }  ///< path of the committed checkpoint

 private:
  std::filesystem::path dir_, temporary_;
  std::string name_, config_text_;
  std::vector<NamedShape> parameters_;
  std::map<std::string, std::size_t> places_;  // index in parameters_ by name
  std::string optimizer_name_;
  std::vector<std::size_t> first_state_;  // [parameters]: index of the parameter's first tensor in the optimizer's file
  FilePlan model_plan_, optimizer_plan_;
  SideFiles side_files_;
  std::optional<SharedFile> model_, optimizer_;
  bool created_ = false;
};

/// Writes a checkpoint; every rank calls it. `write_mine` calls write_weight and write_state for this rank's ranges. If
/// any rank fails, every rank throws that rank's error and nothing remains on disk.
void save(Save& checkpoint, const comm::Ranks& ranks, const TrainerState& state,
          const std::function<void(Save&)>& write_mine);

/// Returns the name of a step's folder: "step-00000012".
std::string step_name(std::int64_t step);

/// Removes all but the `keep` newest checkpoints up to step `newest`. Also keeps those in `spared`.
void remove_older(const std::filesystem::path& dir, std::int64_t newest, std::int64_t keep,
                  std::span<const std::filesystem::path> spared = {});

/// Throws InputError if the disk of `dir` (or of the closest existing parent folder) does not have enough free space
/// for one checkpoint. Warns if the space is not enough for `kept` checkpoints.
void require_room(const std::filesystem::path& dir, const Listing& model, const OptimizerStates& states,
                  std::int64_t kept, const Warn& warn);

/// Returns the newest valid checkpoint in a directory; nothing if there is no such checkpoint. Skips incomplete and
/// damaged checkpoints with a warning. Throws InputError if the system cannot read one: a failing disk must not make a
/// run fall back to an older checkpoint.
std::optional<std::filesystem::path> find_latest(const std::filesystem::path& dir, const ReadListing& read,
                                                 const Warn& warn = {});

/// Returns whether a directory contains a folder with the name of a finished checkpoint, valid or not.
bool holds_any(const std::filesystem::path& dir);

inline constexpr const char* run_identity = "identity";  ///< name of the run's identity in TrainerState::run

/// Returns one line for each .json and .safetensors file directly in a folder: path, size in bytes, digest. The digest
/// of a large .safetensors file covers only a sample of its bytes. Throws InputError if a file cannot be read.
std::string folder_identity(const std::filesystem::path& folder);

/// Throws the same InputError on every rank unless all ranks see the same files in the folder of a model or checkpoint;
/// compares folder_identity.
void agree_on_folder(const comm::Ranks& ranks, const std::filesystem::path& folder);

/// The folder of a step, valid or not.
struct StepFolder {
  std::filesystem::path path;
  std::int64_t step = 0;
  std::string run = {};  ///< identity of the run that wrote it; empty if unknown
};

/// Lists the folders of finished checkpoints in a directory, newest first; an empty list if the directory does not
/// exist. Throws InputError if it cannot be listed.
std::vector<StepFolder> step_folders_in(const std::filesystem::path& dir);

/// A checkpoint that is open for reading, to resume a run from it.
class Checkpoint {
 public:
  /// The checked files of a checkpoint.
  struct Contents {
    Listing listing;
    WeightFiles weights;
    SafetensorsFile optimizer;
    std::string optimizer_name;
    TrainerState state;
  };

  /// Opens the folder of a step, or the newest valid step in a directory of checkpoints. Throws InputError if the step
  /// is not valid, or if the directory contains no valid step.
  static Checkpoint open(std::filesystem::path path, const ReadListing& read, const Warn& warn = {});
  const std::filesystem::path& path() const { return path_; }  ///< folder of the step
  const Listing& model() const { return contents_.listing; }   ///< tensors and config of the model
  /// Returns the step, the position in the data, the seed and the run's options.
  const TrainerState& state() const { return contents_.state; }

  /// Throws InputError, which reports the first tensor (with both shapes) or config value that differs from `model`.
  void check_same_model(const Listing& model) const;

  /// Throws InputError if another optimizer wrote the checkpoint, or if it lacks a state of a parameter that was not
  /// frozen or has it in another format.
  void check_same_optimizer(const OptimizerStates& states) const;

  /// Reads elements [begin, begin + count) of a parameter, bit-identical to the written values.
  void read_weight(const std::string& name, std::int64_t begin, std::int64_t count, float* out) const;
  /// Reads bytes of a state of the parameter, from byte `first` of the whole state on; zeros if the parameter was
  /// frozen.
  void read_state(const std::string& name, std::string_view state, std::int64_t first, std::span<std::byte> out) const;

 private:
  bool was_frozen(const std::string& parameter) const {
    const auto found = contents_.optimizer.metadata().find(parameter);
    return found != contents_.optimizer.metadata().end() && found->second == "frozen";
  }

  void require_format(const TensorInfo& stored, const StoredState& state) const;

  Checkpoint(std::filesystem::path path, Contents contents) : path_(std::move(path)), contents_(std::move(contents)) {}

  std::filesystem::path path_;
  Contents contents_;
};

}  // namespace fsdp::checkpoint
