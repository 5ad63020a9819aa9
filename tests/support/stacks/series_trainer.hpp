// SPDX-License-Identifier: Apache-2.0
/// @file
/// The trainer with the model and data of examples/06_own_model, which have no tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <examples/06_own_model/source.hpp>
#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/optim/optimizer.hpp>
#include <tessera/fsdp/sharding/run_time.hpp>
#include <tessera/trainer/flags/options.hpp>
#include <tessera/trainer/run/engine.hpp>
#include <tessera/trainer/run/run_log.hpp>

namespace fsdp::test {

/// Seasons that can read a sample incorrectly once, like defective hardware.
struct Forgetful : forecaster::Seasons {
  int wrong_from = 0;  ///< the reading of the sample that is incorrect, counted from 1; 0 for none
  std::int64_t sample = 0;
  std::shared_ptr<std::atomic<int>> times = std::make_shared<std::atomic<int>>(0);

  Batch fill(Storage& storage, std::span<const std::int64_t> chosen) const;
};

/// A strategy of RunTimeAny that splits a step into four pieces.
template <class Strategy = FullyShard<>>
RunTimeAny in_pieces() {
  return {.strategy = Reproducible<Strategy>{{}, 4}};
}

/// Constructs a rank's train::Trainer of a small forecaster and returns its `run`. Communicator, options and source
/// must outlive it.
std::function<void()> series_trainer(comm::Threads<>& communicator, const train::TrainOptions& options,
                                     const Forgetful& source, const RunTimeAny& sharding = {},
                                     const optim::AdamW& optimizer = {});

/// Creates a rank's engine of the same trainer. The arguments must outlive it.
std::unique_ptr<train::Engine> series_engine(comm::Threads<>& communicator, const train::TrainOptions& options,
                                             const Forgetful& source, train::RunWatch& watch);

}  // namespace fsdp::test
