// SPDX-License-Identifier: Apache-2.0
/// @file
/// Includes all operations of this library, with what its devices implement of them, and enqueue. Each operation's
/// header says what it reads, writes and costs.
///
/// Code that enqueues an operation of tessera/fsdp/device/compute/ includes this, or that folder's header of its
/// device: without it a dry run sees no scratch of the operation. Sharding alone needs tessera/fsdp/device/operations/
/// only.
#pragma once

#include <tessera/fsdp/device/compute/attention.hpp>
#include <tessera/fsdp/device/compute/bias.hpp>
#include <tessera/fsdp/device/compute/cached_attention.hpp>
#include <tessera/fsdp/device/compute/cpu.hpp>
#include <tessera/fsdp/device/compute/cross_entropy.hpp>
#include <tessera/fsdp/device/compute/cuda.hpp>
#include <tessera/fsdp/device/compute/embedding.hpp>
#include <tessera/fsdp/device/compute/matmul.hpp>
#include <tessera/fsdp/device/compute/muon.hpp>
#include <tessera/fsdp/device/compute/norm.hpp>
#include <tessera/fsdp/device/compute/rope.hpp>
#include <tessera/fsdp/device/compute/swiglu.hpp>
#include <tessera/fsdp/device/operation.hpp>
#include <tessera/fsdp/device/operations/adamw.hpp>
#include <tessera/fsdp/device/operations/digest.hpp>
#include <tessera/fsdp/device/operations/elements.hpp>
#include <tessera/fsdp/device/operations/optimizer.hpp>
#include <tessera/fsdp/device/operations/sgd.hpp>
