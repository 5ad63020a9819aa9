// SPDX-License-Identifier: Apache-2.0
/// @file
/// Precompiled for tests with -O1 (tests/CMakeLists.txt). No source includes it.
#pragma once

#include <gtest/gtest.h>

#include <range/v3/view/cartesian_product.hpp>
#include <range/v3/view/chunk.hpp>
#include <range/v3/view/enumerate.hpp>
#include <range/v3/view/zip.hpp>

#include <tessera/fsdp/core/error.hpp>
#include <tessera/fsdp/core/tensor.hpp>
