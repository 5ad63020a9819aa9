// SPDX-License-Identifier: Apache-2.0
#include <support/stacks/series_trainer.hpp>

#include <examples/06_own_model/model.hpp>
#include <range/v3/view/enumerate.hpp>

#include <tessera/trainer/run/trainer.hpp>

namespace fsdp::test {
namespace {

using Series = forecaster::Forecaster<Stack<RunTimeAny, comm::Threads<>, Fp32, tiling::RunTimeTiling>>;

Series small_series() { return Series(forecaster::Config{.hidden = 16, .intermediate = 24}); }

}  // namespace

Forgetful::Batch Forgetful::fill(Storage& storage, std::span<const std::int64_t> chosen) const {
  const Batch batch = forecaster::Seasons::fill(storage, chosen);
  for (const auto& [i, each] : ranges::views::enumerate(chosen))
    if (each == sample && ++*times == wrong_from)
      reinterpret_cast<float*>(storage.memory.get())[static_cast<std::int64_t>(i) * length * series] += 1;
  return batch;
}

std::function<void()> series_trainer(comm::Threads<>& communicator, const train::TrainOptions& options,
                                     const Forgetful& source, const RunTimeAny& sharding,
                                     const optim::AdamW& optimizer) {
  const auto trainer = std::make_shared<train::Trainer<Series, Forgetful, optim::AdamW>>(
      communicator, options, small_series(), source, sharding, tiling::RunTimeTiling{}, optimizer);
  return [trainer] { (void)trainer->run(); };
}

std::unique_ptr<train::Engine> series_engine(comm::Threads<>& communicator, const train::TrainOptions& options,
                                             const Forgetful& source, train::RunWatch& watch) {
  return std::make_unique<train::EngineOf<Series, Forgetful, optim::AdamW>>(
      communicator, options, small_series(), source, RunTimeAny{}, tiling::RunTimeTiling{}, optim::AdamW{}, watch,
      train::step_size(options, communicator.size(), 0));
}

}  // namespace fsdp::test
