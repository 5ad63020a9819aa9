// SPDX-License-Identifier: Apache-2.0
/// @file
/// The implementation of tests/support/stacks/trainers.hpp for one stack.
#pragma once

#include <tessera/trainer/run/train.hpp>
#include <tessera/trainer/run/trainer.hpp>

namespace fsdp::test {

template <class Model>
void run_trainer(const train::TrainOptions& options) {
  using Comm = typename Model::Stack::Comm;
  const int status = train::launch<Comm>(options.launch, [&](Comm& communicator) {
    const Model model = train::model_of<Model>(options);
    const data::TextSource source =
        train::text_of(options, data::parse_data(options.data), options.validation_fraction, model.config().vocab_size);
    return train::Trainer<Model, data::TextSource>(communicator, options, model, source, {}, {}).run();
  });
  require(status == 0, "a run of the test ended with status ", status);
}

}  // namespace fsdp::test
