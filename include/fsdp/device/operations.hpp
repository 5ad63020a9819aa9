// SPDX-License-Identifier: Apache-2.0
/// @file
/// Includes all operations of this library, with their implementations on its devices, and enqueue. Each operation's
/// header documents its inputs, outputs and cost.
///
/// Code that enqueues an operation of tessera/fsdp/device/compute/ includes this, or the header of its device in that
/// folder; otherwise a dry run does not count the operation's scratch. Sharding alone needs only
/// tessera/fsdp/device/operations/.
#pragma once

#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/device/compute/cuda.hpp>
#include <tessera/fsdp/device/compute/matmul.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/vocabulary.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
