// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the commands about folders share.
#pragma once

#include <cstdio>
#include <string>

#include <comm/self.hpp>
#include <fsdp/checkpoint/model_files.hpp>
#include <fsdp/models/llama.hpp>

namespace fsdp::cli {

/// Any stack's Llama: used only to list the parameters of a config.
using Listed = Llama<Stack<Replicated, comm::Self<>, Fp32, tiling::Untiled>>;

inline void warn(const std::string& text) { std::fprintf(stderr, "tessera: warning: %s\n", text.c_str()); }

}  // namespace fsdp::cli
