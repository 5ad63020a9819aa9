// SPDX-License-Identifier: Apache-2.0
/// @file
/// Precompiled for support/stacks (cmake/precompiled.cmake). No source includes it.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include <tessera/comm/threads.hpp>
#include <tessera/trainer/train_main.hpp>
