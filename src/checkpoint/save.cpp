// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <iomanip>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include <fsdp/checkpoint/folder.hpp>
#include <fsdp/core/error.hpp>

#include "posix.hpp"
#include "trainer_state.hpp"

namespace fsdp::checkpoint {
namespace {

std::string step_name(std::int64_t step) {
  std::ostringstream name;
  name << "step-" << std::setw(8) << std::setfill('0') << step;
  return name.str();
}

/// One tensor for each state of each parameter.
std::vector<NamedShape> tensors_of(const OptimizerStates& states, std::span<const NamedShape> parameters) {
  std::vector<NamedShape> tensors;
  for (const NamedShape& parameter : parameters)
    for (const std::string& state : states.of.at(parameter.name))
      tensors.push_back({parameter.name + "." + state, parameter.shape});
  return tensors;
}

/// Puts `from` in the place of `to`. A folder that is already there is exchanged in one step and ends up at `from`.
void rename_over(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) throw_errno(to, "renamed to");
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  const std::filesystem::path aside = from.string() + ".replaced";  // a file system that cannot exchange
  if (::rename(to.c_str(), aside.c_str()) != 0) throw_errno(to, "moved aside");
  if (::rename(from.c_str(), to.c_str()) != 0) throw_errno(to, "renamed to");
  std::error_code ignored;
  std::filesystem::remove_all(aside, ignored);
}

/// Removes what runs that were killed while they saved have left. One run at a time writes into a folder.
void remove_leftovers(const std::filesystem::path& dir) {
  std::error_code error;
  std::vector<std::filesystem::path> leftovers;
  for (const auto& entry : std::filesystem::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("step-") || name.starts_with("latest.");
    if (ours && name.find(".tmp-") != std::string::npos) leftovers.push_back(entry.path());
  }
  for (const std::filesystem::path& path : leftovers) std::filesystem::remove_all(path, error);
}

}  // namespace

Save::Save(std::filesystem::path dir, std::int64_t step, std::uint64_t id, const ModelListing& model,
           const OptimizerStates& states)
    : dir_(std::move(dir)),
      name_(step_name(step)),
      config_text_(model.config),
      parameters_(model.parameters),
      optimizer_name_(states.optimizer),
      model_plan_(plan_file(parameters_, {{"format", "pt"}})),
      optimizer_plan_(plan_file(tensors_of(states, parameters_))) {
  std::size_t first = 0;
  for (const NamedShape& parameter : parameters_) {
    first_state_.push_back(first);
    first += states.of.at(parameter.name).size();
  }
  temporary_ = dir_ / (name_ + ".tmp-" + std::to_string(id));
}

Save::~Save() {
  if (created_) abort();
}

void Save::create() {
  std::error_code error;
  std::filesystem::create_directories(dir_, error);
  require<InputError>(!error, dir_.string(), ": cannot be created: ", error.message());
  remove_leftovers(dir_);
  if (!std::filesystem::create_directory(temporary_, error) || error)
    throw InputError(message(temporary_.string(), ": cannot be created: ", error.message()));
  created_ = true;
  model_ = SharedFile::create(temporary_ / "model.safetensors", model_plan_);
  optimizer_ = SharedFile::create(temporary_ / "optimizer.safetensors", optimizer_plan_);
  write_new_file(temporary_ / "config.json", config_text_);
}

void Save::join() {
  model_ = SharedFile::join(temporary_ / "model.safetensors", model_plan_);
  optimizer_ = SharedFile::join(temporary_ / "optimizer.safetensors", optimizer_plan_);
}

void Save::write_weight(std::size_t parameter, std::int64_t begin, std::span<const float> values) {
  require(model_.has_value(), "checkpoint: write needs create or join before it");
  model_->write_range(parameter, begin, values);
}

void Save::write_state(std::size_t parameter, std::size_t state, std::int64_t begin, std::span<const float> values) {
  require(optimizer_.has_value(), "checkpoint: write needs create or join before it");
  optimizer_->write_range(first_state_[parameter] + state, begin, values);
}

void Save::sync() {
  require(model_.has_value() && optimizer_.has_value(), "checkpoint: sync needs create or join before it");
  model_->finish();
  optimizer_->finish();
  model_.reset();
  optimizer_.reset();
}

void Save::commit(const TrainerState& state) {
  require(created_ && !model_.has_value(), "checkpoint: commit needs create and sync before it");
  const TrainerFile file{.state = state, .sizes_hash = hash_of(parameters_), .optimizer = optimizer_name_};
  write_new_file(temporary_ / "trainer.json", to_json(file));
  sync_directory(temporary_);
  rename_over(temporary_, path());
  created_ = false;
  std::error_code ignored;
  std::filesystem::remove_all(temporary_, ignored);  // an older checkpoint of this step
  sync_directory(dir_);

  const std::filesystem::path fresh = dir_ / ("latest.tmp-" + name_);
  std::filesystem::remove(fresh, ignored);
  try {
    write_new_file(fresh, name_ + "\n");
    rename_over(fresh, dir_ / "latest");
  } catch (const InputError&) {
    std::filesystem::remove(fresh, ignored);
    throw;
  }
  sync_directory(dir_);
}

void Save::abort() noexcept {
  model_.reset();
  optimizer_.reset();
  if (!created_) return;
  created_ = false;
  std::error_code ignored;
  std::filesystem::remove_all(temporary_, ignored);
}

void save(Save& checkpoint, int rank, const TrainerState& state, const std::function<bool(bool)>& all,
          const std::function<void(Save&)>& write_mine) {
  std::exception_ptr mine;
  const auto stage = [&](auto&& work) {
    try {
      work();
    } catch (...) {
      mine = std::current_exception();
    }
    if (all(mine == nullptr)) return;
    checkpoint.abort();
    if (mine) std::rethrow_exception(mine);
    all(true);  // does not return where the rank that has the reason ends the others with it
    throw InputError(message(checkpoint.path().string(),
                             ": another rank could not write its part of the checkpoint; nothing of it was kept"));
  };
  stage([&] {
    if (rank == 0) checkpoint.create();
  });
  stage([&] {
    if (rank != 0) checkpoint.join();
    write_mine(checkpoint);
    checkpoint.sync();
  });
  stage([&] {
    if (rank == 0) checkpoint.commit(state);
  });
}

}  // namespace fsdp::checkpoint
