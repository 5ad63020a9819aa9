// SPDX-License-Identifier: Apache-2.0
/// @file
/// `tessera plan --fit`: looks for the fastest ways to train that fit on a cluster.
#pragma once

#include <functional>

#include <tessera/fsdp/plan/cluster.hpp>

#include "commands.hpp"
#include "fit_space.hpp"
#include "ways.hpp"

namespace fsdp::cli {

/// Whether the program was compiled with a stack.
using HasStack = std::function<bool(const StackChoice&)>;

/// Prints the three fastest ways that fit, with their flags and the C++ of the first, and why others lose. `has`:
/// whether the program can run a way; how to compile others is told. Returns the exit status. Throws InputError if
/// nothing fits; it says what would be needed.
int fit(const Bound<Plan>& command, const plan::Cluster& cluster, const HasStack& has, EstimateStep estimate);

}  // namespace fsdp::cli
