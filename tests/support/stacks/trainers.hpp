// SPDX-License-Identifier: Apache-2.0
/// @file
/// The whole trainer, on options.launch.ranks threads.
#pragma once

#include <string>
#include <vector>

#include <tessera/trainer/flags/options.hpp>

namespace fsdp::test {

/// Trains on an asynchronous device; returns descriptions of unordered accesses.
std::vector<std::string> train_queued(const train::TrainOptions& options);
void train_on_cpu(const train::TrainOptions& options);

}  // namespace fsdp::test
