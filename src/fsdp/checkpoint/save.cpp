// SPDX-License-Identifier: Apache-2.0
#include <tessera/fsdp/checkpoint/folder.hpp>

#include <cstring>
#include <system_error>
#include <type_traits>

#include <tessera/fsdp/core/checked.hpp>
#include <tessera/fsdp/core/error.hpp>

#include "manifest.hpp"
#include "posix.hpp"
#include "step_folders.hpp"
#include "trainer_state.hpp"

namespace fsdp::checkpoint {
namespace {

using Share = WrittenSums::Share;
static_assert(std::is_trivially_copyable_v<Share>);

void append(std::string& text, const WrittenSums& sums, std::uint32_t file) {
  for (Share share : sums.shares()) {
    share.file = file;
    text.append(reinterpret_cast<const char*>(&share), sizeof share);
  }
}

std::vector<Share> shares_in(std::span<const std::string> texts) {
  std::vector<Share> shares;
  for (const std::string& text : texts) {
    const std::size_t before = shares.size();
    shares.resize(before + text.size() / sizeof(Share));
    std::memcpy(shares.data() + before, text.data(), (shares.size() - before) * sizeof(Share));
  }
  return shares;
}

/// Returns the shares of every rank on rank 0, and empty texts on the other ranks.
std::vector<std::string> gathered(const comm::Ranks& ranks, std::string mine) {
  const std::int64_t length = std::ssize(mine);
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(ranks.size()));
  ranks.gather_bytes(std::as_bytes(std::span(&length, 1)), std::as_writable_bytes(std::span(lengths)), {"checkpoint"});
  std::vector<std::string> all;
  for (int rank = 0; rank < ranks.size(); ++rank) {  // one broadcast per rank, since lengths may differ a lot
    std::string shares = rank == ranks.rank() ? std::move(mine) : std::string();
    shares.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(rank)]));
    ranks.broadcast(std::as_writable_bytes(std::span(shares)), rank, {"checkpoint"});
    all.push_back(ranks.rank() == 0 ? std::move(shares) : std::string());
  }
  return all;
}

/// Plans optimizer.safetensors: one tensor, "name.state", for each state of each parameter: in the parameter's shape,
/// or for codecs as bytes. The metadata list the frozen parameters, and the codecs of bytes by tensor.
FilePlan plan_states(const OptimizerStates& states, std::span<const NamedShape> parameters) {
  std::vector<NamedShape> tensors;
  std::vector<DType> types;
  std::map<std::string, std::string> metadata;
  for (const NamedShape& parameter : parameters)
    for (const StoredState& state : states.of.at(parameter.name)) {
      tensors.push_back({parameter.name + "." + state.name, parameter.shape});
      types.push_back(state.format->type);
      if (types.back() != DType::u8) continue;
      tensors.back().shape = {state.format->bytes(elements_of(parameter.shape))};
      metadata[tensors.back().name] = state.format->text();
    }
  for (const std::string& name : states.frozen) metadata[name] = "frozen";
  return plan_file(std::move(tensors), metadata, std::move(types));
}

}  // namespace

void require_room(const std::filesystem::path& dir, const Listing& model, const OptimizerStates& states,
                  std::int64_t kept, const Warn& warn) {
  const std::optional<std::int64_t> left = bytes_left(dir);
  if (!left) return;
  const std::int64_t needed =
      checked_add(plan_file(model.parameters).file_bytes, plan_states(states, model.parameters).file_bytes);
  require<InputError>(needed <= *left, dir.string(), ": a checkpoint takes ", needed, " bytes and its disk has ", *left,
                      " left: No space left on device. Make room, or choose another folder");
  if (warn && static_cast<double>(needed) * static_cast<double>(kept) > static_cast<double>(*left))
    warn(message(dir.string(), ": ", kept, " checkpoints of ", needed, " bytes each will not fit into the ", *left,
                 " bytes that its disk has left"));
}

Save::Save(std::filesystem::path dir, std::int64_t step, std::uint64_t id, const Listing& model,
           const OptimizerStates& states, SideFiles side_files)
    : dir_(std::move(dir)),
      name_(step_name(step)),
      config_text_(model.config),
      parameters_(model.parameters),
      optimizer_name_(states.optimizer),
      model_plan_(plan_file(parameters_, {{"format", "pt"}})),
      optimizer_plan_(plan_states(states, parameters_)),
      side_files_(std::move(side_files)) {
  std::size_t first = 0;
  for (const NamedShape& parameter : parameters_) {
    places_[parameter.name] = first_state_.size();
    first_state_.push_back(first);
    first += states.of.at(parameter.name).size();
  }
  temporary_ = dir_ / (name_ + ".tmp-" + std::to_string(id));
}

Save::~Save() {
  if (created_) abort();
}

std::size_t Save::place_of(const std::string& name) const { return places_.at(name); }

void Save::create() {
  make_folders(dir_);
  remove_leftovers(dir_);
  std::error_code error;
  if (!std::filesystem::create_directory(temporary_, error) || error)
    throw InputError(message(temporary_.string(), ": cannot be created: ", error.message()));
  created_ = true;
  model_ = SharedFile::create(temporary_ / model_name, model_plan_);
  optimizer_ = SharedFile::create(temporary_ / optimizer_name, optimizer_plan_);
  write_new_file(temporary_ / config_name, config_text_);
  for (const auto& [name, content] : side_files_) write_new_file(temporary_ / name, content);
}

void Save::join() {
  model_ = SharedFile::join(temporary_ / model_name, model_plan_);
  optimizer_ = SharedFile::join(temporary_ / optimizer_name, optimizer_plan_);
}

void Save::write_weight(std::size_t parameter, std::int64_t begin, std::span<const float> values) {
  require(model_.has_value(), "checkpoint: write needs create or join before it");
  model_->write_range(parameter, begin, values);
}

void Save::write_state(std::size_t parameter, std::size_t state, std::int64_t first, std::span<const std::byte> bytes) {
  require(optimizer_.has_value(), "checkpoint: write needs create or join before it");
  optimizer_->write_bytes(first_state_[parameter] + state, first, bytes);
}

std::string Save::sync() {
  require(model_.has_value() && optimizer_.has_value(), "checkpoint: sync needs create or join before it");
  model_->finish();
  optimizer_->finish();
  std::string shares;
  append(shares, model_->sums(), 0);
  append(shares, optimizer_->sums(), 1);
  model_.reset();
  optimizer_.reset();
  return shares;
}

std::string Save::trainer_text(const TrainerState& state) const {
  return to_json(TrainerFile{.state = state, .sizes_hash = hash_of(parameters_), .optimizer = optimizer_name_});
}

void Save::commit(const TrainerState& state, std::span<const std::string> texts) {
  require(created_ && !model_.has_value(), "checkpoint: commit needs create and sync before it");
  const std::vector<Share> shares = shares_in(texts);
  const std::string trainer = trainer_text(state);
  const std::filesystem::path model = path() / model_name, optimizer = path() / optimizer_name;
  Manifest manifest{.files = {{config_name, sums_of(config_text_)},
                              {model_name, combined(model.string(), model_plan_.file_bytes, 0, shares)},
                              {optimizer_name, combined(optimizer.string(), optimizer_plan_.file_bytes, 1, shares)},
                              {trainer_name, sums_of(trainer)}}};
  for (const auto& [name, content] : side_files_) manifest.files.emplace(name, sums_of(content));
  write_new_file(temporary_ / trainer_name, trainer);
  write_new_file(temporary_ / manifest_name, to_json(manifest));
  sync_directory(temporary_);
  rename_over(temporary_, path());
  created_ = false;
  std::error_code ignored;
  // After the exchange this is the older checkpoint of the step, if there was one
  std::filesystem::remove_all(temporary_, ignored);
  sync_directory(dir_);

  const std::filesystem::path fresh = dir_ / ("latest.tmp-" + name_);
  std::filesystem::remove(fresh, ignored);
  try {
    write_new_file(fresh, name_ + "\n");
    rename_over(fresh, dir_ / latest_name);
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

void save(Save& checkpoint, const comm::Ranks& ranks, const TrainerState& state,
          const std::function<void(Save&)>& write_mine) {
  const auto stage = [&](const auto& work) {
    try {
      comm::together(ranks, "checkpoint", work);
    } catch (...) {
      checkpoint.abort();
      throw;
    }
  };
  stage([&] {
    if (ranks.rank() != 0) return;
    checkpoint.trainer_text(state);  // rejects invalid values before anything is written
    checkpoint.create();
  });
  std::string shares;
  stage([&] {
    if (ranks.rank() != 0) checkpoint.join();
    write_mine(checkpoint);
    shares = checkpoint.sync();
  });
  const std::vector<std::string> all_shares = gathered(ranks, std::move(shares));
  stage([&] {
    if (ranks.rank() == 0) checkpoint.commit(state, all_shares);
  });
}

}  // namespace fsdp::checkpoint
