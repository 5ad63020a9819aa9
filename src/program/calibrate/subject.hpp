// SPDX-License-Identifier: Apache-2.0
/// @file
/// The interface through which a calibration accesses its communicator and its device.
#pragma once

#include <functional>

#include <tessera/comm/collectives.hpp>
#include <tessera/comm/ranks.hpp>
#include <tessera/fsdp/core/function_ref.hpp>
#include <tessera/fsdp/training/launch.hpp>

#include "calibrate.hpp"
#include "links.hpp"
#include "work.hpp"

namespace fsdp::calibrate {

/// The ranks and the device to be measured.
struct Subject {
  comm::Ranks all;
  bool shares_process = false;  ///< whether the ranks are threads of one process
  DeviceWork device;
  /// Creates the communicators of ranks with equal colors. Collective.
  std::function<Link(FunctionRef<int(int rank)> color_of)> link;
};

/// Measures on all ranks; each figure is that of the slowest rank. Rank 0 writes the file.
void measure(const cli::Calibrate& options, const Subject& subject);

template <class Comm>
int calibrate(const cli::Calibrate& options) {
  return train::launch<Comm>(options.launch, [&options](Comm& communicator) {
    measure(options,
            {.all = comm::Ranks(communicator),
             .shares_process = train::starts_ranks<Comm>,
             .device = work_on<typename Comm::Device>(),
             .link = [&](FunctionRef<int(int)> color_of) {
               return LinkWork<Comm>::link(std::make_shared<LinkWork<Comm>>(comm::split(communicator, color_of)));
             }});
  });
}

}  // namespace fsdp::calibrate
