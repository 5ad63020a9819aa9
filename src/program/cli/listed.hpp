// SPDX-License-Identifier: Apache-2.0
/// @file
/// The listing of a folder's parameters, for all commands about folders.
#pragma once

#include <tessera/comm/self.hpp>
#include <tessera/fsdp/model_files/model_files.hpp>
#include <tessera/fsdp/models/llama.hpp>

namespace fsdp::cli {

/// A Llama on any stack: used only to list the parameters of a config.
using Listed = Llama<Stack<Replicated, comm::Self<>, Fp32, tiling::Untiled>>;

}  // namespace fsdp::cli
