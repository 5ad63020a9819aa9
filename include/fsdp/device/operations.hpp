// SPDX-License-Identifier: Apache-2.0
/// @file
/// Includes all operations of this library, and enqueue. Each operation's header says what it reads, writes and costs.
#pragma once

#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/device/operations/attention.hpp>
#include <tessera/fsdp/device/operations/bias.hpp>
#include <tessera/fsdp/device/operations/cached_attention.hpp>
#include <tessera/fsdp/device/operations/cross_entropy.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/embedding.hpp>
#include <tessera/fsdp/device/operations/matmul.hpp>
#include <tessera/fsdp/device/operations/muon.hpp>
#include <tessera/fsdp/device/operations/norm.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/device/operations/rope.hpp>
#include <tessera/fsdp/device/operations/sgd.hpp>
#include <tessera/fsdp/device/operations/swiglu.hpp>
