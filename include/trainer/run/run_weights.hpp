// SPDX-License-Identifier: Apache-2.0
/// @file
/// Type-erased access to a run's weights and optimizer state: code for checkpoints does not depend on the stack.
#pragma once

#include <cstdint>
#include <filesystem>

#include <tessera/fsdp/checkpoint/folder.hpp>
#include <tessera/fsdp/checkpoint/shards_io.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/optim/initialize.hpp>
#include <tessera/fsdp/training/training.hpp>

namespace fsdp::train {

/// A reference to a Training of any stack.
class RunWeights {
 public:
  /// `training` must outlive it.
  template <class Model, class Optimizer>
  explicit RunWeights(Training<Model, Optimizer>& training)
      : training_(&training), calls_(&calls<Model, Training<Model, Optimizer>>) {}

  /// Steps done, and how many of them were skipped without changing a weight.
  /// @{
  std::int64_t steps() const { return calls_->steps(training_); }
  std::int64_t skipped() const { return calls_->skipped(training_); }
  /// @}
  /// Call the functions of the same name in tessera/fsdp/optim/initialize.hpp, tessera/fsdp/model_files/load.hpp
  /// (load_weights) and tessera/fsdp/checkpoint/shards_io.hpp (write_shards).
  /// @{
  void initialize(std::uint64_t seed, optim::Begin which) const { calls_->initialize(training_, seed, which); }
  void load(const checkpoint::ModelFiles& files) const { calls_->load(training_, files); }
  void restore(const checkpoint::Checkpoint& from) const { calls_->restore(training_, from); }
  void require_finite() const { calls_->require_finite(training_); }
  void write(checkpoint::Save& save) const { calls_->write(training_, save); }
  /// @}
  /// The tensors that a folder of this model holds, and the states that its optimizer keeps.
  /// @{
  checkpoint::ModelListing listing() const { return calls_->listing(training_); }
  checkpoint::OptimizerStates states() const { return calls_->states(training_); }
  /// @}
  /// Reads the listing of a folder's model, with the adapters of another folder unless `adapter` is empty. Throws
  /// InputError.
  checkpoint::ModelListing listing_of(const std::filesystem::path& folder,
                                      const std::filesystem::path& adapter = {}) const {
    return calls_->listing_of(folder, adapter);
  }

 private:
  struct Calls {
    std::int64_t (*steps)(void*);
    std::int64_t (*skipped)(void*);
    void (*initialize)(void*, std::uint64_t, optim::Begin);
    void (*load)(void*, const checkpoint::ModelFiles&);
    void (*restore)(void*, const checkpoint::Checkpoint&);
    void (*require_finite)(void*);
    void (*write)(void*, checkpoint::Save&);
    checkpoint::ModelListing (*listing)(void*);
    checkpoint::OptimizerStates (*states)(void*);
    checkpoint::ModelListing (*listing_of)(const std::filesystem::path&, const std::filesystem::path&);
  };
  template <class T>
  static T& as(void* training) {
    return *static_cast<T*>(training);
  }
  template <class Model, class T>
  static constexpr Calls calls = {
      .steps = [](void* t) { return as<T>(t).optimizer().steps(); },
      .skipped = [](void* t) { return as<T>(t).optimizer().control().skipped(); },
      .initialize = [](void* t, std::uint64_t seed,
                       optim::Begin which) { optim::initialize(as<T>(t).module(), seed, which); },
      .load = [](void* t, const checkpoint::ModelFiles& files) { load_weights(as<T>(t).module(), files); },
      .restore =
          [](void* t, const checkpoint::Checkpoint& from) {
            train::restore(as<T>(t).module(), as<T>(t).optimizer(), from);
          },
      .require_finite = [](void* t) { train::require_finite(as<T>(t).module(), as<T>(t).optimizer()); },
      .write = [](void* t, checkpoint::Save& save) { write_shards(as<T>(t).module(), as<T>(t).optimizer(), save); },
      .listing = [](void* t) { return checkpoint::listing_of(as<T>(t).module().model()); },
      .states = [](void* t) { return states_of(as<T>(t).module(), as<T>(t).optimizer().optimizer()); },
      .listing_of =
          [](const std::filesystem::path& folder, const std::filesystem::path& adapter) {
            return checkpoint::listing_of(Model(read_config<typename Model::Config>(folder, adapter), Units{}));
          }};

  void* training_;
  const Calls* calls_;
};

}  // namespace fsdp::train
