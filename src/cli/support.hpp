// SPDX-License-Identifier: Apache-2.0
/// @file
/// What policies and backends can do, whatever this program holds compiled: tables made of the traits that `Stack` and
/// the collectives judge by.
#pragma once

#include <string>

namespace fsdp::cli {

/// Backends by operation and element type, precisions by backend, strategies by placement and layout.
std::string support_text();

}  // namespace fsdp::cli
