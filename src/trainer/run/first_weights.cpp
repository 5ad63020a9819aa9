// SPDX-License-Identifier: Apache-2.0
#include <tessera/trainer/run/first_weights.hpp>

#include <tessera/fsdp/checkpoint/weight_files.hpp>
#include <tessera/fsdp/core/error.hpp>

namespace fsdp::train {

bool starts_from_folder(const TrainOptions& options, bool names_folder, bool adapters) {
  if (!names_folder || options.from_scratch) return false;
  const bool stored = [&] {
    try {
      return checkpoint::holds_weights(options.model.name);
    } catch (const InputError& error) {
      throw InputError(message(error.what(), ". Training from random weights instead takes --from-scratch"));
    }
  }();
  require<InputError>(stored || !adapters, "--model ", options.model.name, " holds no weights, and adapters would be ",
                      "trained beside random ones; give a folder with weights, or --from-scratch");
  return stored;
}

}  // namespace fsdp::train
