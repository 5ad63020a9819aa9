// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera calibrate`: measures the figures of a plan::Cluster, while all ranks run the same measurements.
#pragma once

#include "../cli/commands.hpp"

namespace fsdp::calibrate {

/// Starts or joins the ranks of a communicator and measures; rank 0 writes the file. Returns the exit status. Throws
/// InputError unless ranks are numbered node by node. Defined for the program's communicators (on_comm.cpp.in).
template <class Comm>
int calibrate(const cli::Calibrate& options);

}  // namespace fsdp::calibrate
