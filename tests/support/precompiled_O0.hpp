// SPDX-License-Identifier: Apache-2.0
/// @file
/// Precompiled for tests with -O0 (tests/CMakeLists.txt). No source includes it.
#pragma once

#include <gtest/gtest.h>

#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/comm/threads.hpp>
#include <tessera/fsdp/models/llama_config.hpp>
#include <tessera/fsdp/optim/sharded.hpp>
#include <tessera/fsdp/training/run_time_optimizer.hpp>
