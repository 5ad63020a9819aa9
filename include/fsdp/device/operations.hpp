// SPDX-License-Identifier: Apache-2.0
/// @file
/// Includes all operations of this library, and enqueue. Each operation's header says what it reads, writes and costs.
#pragma once

#include <fsdp/device/operation.hpp>
#include <fsdp/device/operations/adamw.hpp>
#include <fsdp/device/operations/attention.hpp>
#include <fsdp/device/operations/bias.hpp>
#include <fsdp/device/operations/cached_attention.hpp>
#include <fsdp/device/operations/cross_entropy.hpp>
#include <fsdp/device/operations/elements.hpp>
#include <fsdp/device/operations/embedding.hpp>
#include <fsdp/device/operations/matmul.hpp>
#include <fsdp/device/operations/muon.hpp>
#include <fsdp/device/operations/norm.hpp>
#include <fsdp/device/operations/optimizer.hpp>
#include <fsdp/device/operations/rope.hpp>
#include <fsdp/device/operations/sgd.hpp>
#include <fsdp/device/operations/swiglu.hpp>
