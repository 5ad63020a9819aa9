// SPDX-License-Identifier: Apache-2.0
/// @file
/// Options of `tessera calibrate`.
#pragma once

#include <cstdint>
#include <string>

#include <tessera/trainer/flags/options.hpp>

#include "stack_choice.hpp"

namespace fsdp::cli {

/// `tessera calibrate`: measures the machines that it is started on, as a cluster's file.
struct Calibrate {
  std::string out = {};      ///< the file to write; empty: stdout
  std::int64_t repeats = 9;  ///< of each figure; the median is taken
  CommChoice comm = {};
  train::LaunchOptions launch = {};
};

}  // namespace fsdp::cli
