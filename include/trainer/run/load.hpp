// SPDX-License-Identifier: Apache-2.0
/// @file
/// Loads a folder's weights within the disk deadline.
#pragma once

#include <string>

#include <tessera/comm/launch/print.hpp>
#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/execution/sharded_model.hpp>
#include <tessera/fsdp/model_files/load.hpp>
#include <tessera/fsdp/training/launch_options.hpp>
#include <tessera/trainer/flags/disk_deadline.hpp>

namespace fsdp::train {

/// Loads a folder's weights, with the adapters of another folder unless `adapter` is empty. Collective; rank 0 prints
/// warnings.
template <class Model>
void load(typename Model::Stack::Comm& communicator, const LaunchOptions& launch, ShardedModel<Model>& module,
          const std::string& folder, const std::string& adapter = {}) {
  with_disk_deadline(communicator, launch.disk_deadline_seconds, message("reading ", folder, " (--disk-deadline)"),
                     [&] {
                       load_agreed_weights(
                           communicator, module, folder,
                           [&](const std::string& text) {
                             if (communicator.rank() == 0) print_warning(text);
                           },
                           adapter);
                     });
}

}  // namespace fsdp::train
