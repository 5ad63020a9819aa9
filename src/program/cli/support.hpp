// SPDX-License-Identifier: Apache-2.0
/// @file
/// Tables of what policies and backends support, whether or not it is compiled into this program. They are made from
/// the traits that `Stack` and the collectives check.
#pragma once

#include <string>

namespace fsdp::cli {

/// Returns the tables: backends by operation and element type, precisions by backend, strategies by placement and
/// layout.
std::string support_text();

}  // namespace fsdp::cli
